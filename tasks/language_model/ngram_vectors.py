"""N-gram embeddings: vectors of the last few tokens, added to those of single tokens.

    v_t = P [E_2[h(token_(t-1), token_t)]; ...; E_N[h(token_(t-N+1), ..., token_t)]]

h hashes an n-gram by a polynomial modulo a prime, and that modulo the rows of a table, so different
n-grams may share a row. Lookups cost next to nothing, so a small byte-level model need not spend
its width on which letters occur together.
Source: Pagnoni et al. 2024 (Byte Latent Transformer), section 3.2.1, where tables have the model's
width; here they are narrower, and P [D, (N - 1) V] projects the concatenated vectors to that width.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

LONGEST = 64  # tokens
MOST_ROWS = 2**24
SIZE = 32  # V: size of a table's vectors
STD = 0.1  # of their initial values
_PRIME, _BASE = 2**31 - 1, 1_000_003  # their product fits int64


class NgramVectors(nn.Module):
    """One table of `rows` vectors for each n from 2 to N = `longest`, which is at least 2."""

    def __init__(self, longest: int, rows: int, width: int):
        super().__init__()
        if not 2 <= longest <= LONGEST:
            raise ValueError(f"--ngrams must lie in 1 to {LONGEST}, not {longest}")
        if not 1 <= rows <= MOST_ROWS:
            raise ValueError(f"--ngram-rows must lie in 1 to {MOST_ROWS:,}, not {rows}")
        self.longest, self.rows = longest, rows
        orders = range(2, longest + 1)
        self.tables = nn.ParameterList(nn.Parameter(STD * torch.randn(rows, SIZE)) for _ in orders)
        self.project = nn.Linear(len(orders) * SIZE, width, bias=False)

    def forward(
        self, tokens: Int[Tensor, "T B"], before: Float[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "B M"]]:
        """Return the vectors, and `before` for the next call.

        `before` has the numbers of the last M = N - 1 tokens plus 1, newest last; positions before
        the start of the text are 0.
        """
        line = torch.cat([before.t().long(), tokens + 1])
        last = len(line)
        code, found = torch.zeros_like(tokens), []
        for n in range(self.longest):
            code = (code * _BASE + line[self.longest - 1 - n : last - n]) % _PRIME
            if n:
                found.append(F.embedding(code % self.rows, self.tables[n - 1]))
        return self.project(torch.cat(found, -1)), line[last - before.shape[1] :].t().to(before)
