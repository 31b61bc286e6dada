# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A core in your own model
#
# A core is a `torch.nn.Module` that maps x [T, B, D] and a state to y [T, B, E] and the next
# state. Here it sits between an embedding and an output layer. The task is associative recall:
# read pairs of a letter and a digit, then one of the letters again, and answer with its digit.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from fastweights.cores import build_core

torch.manual_seed(1)
torch.set_num_threads(1)
LETTERS, DIGITS, PAIRS = 8, 8, 4


# %%
class Recall(nn.Module):
    """Embedding, core and output layer."""

    def __init__(self, core: str, **options):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS + DIGITS, 32)
        self.core = build_core(core, 32, **options)
        self.output = nn.Linear(self.core.output_size, DIGITS)

    def forward(self, words, state=None, is_first=None):
        y, state = self.core(self.embedding(words), state, is_first)
        return self.output(y), state


def draw(batch: int):
    """Words [T, B], `letter digit letter digit ... letter`, and the digit to answer with [B]."""
    letters = torch.rand(batch, LETTERS).argsort(1)[:, :PAIRS]
    digits = torch.randint(DIGITS, (batch, PAIRS))
    asked = torch.randint(PAIRS, (batch, 1))
    pairs = torch.stack([letters, LETTERS + digits], 2).flatten(1)
    words = torch.cat([pairs, letters.gather(1, asked)], 1)
    return words.t(), digits.gather(1, asked)[:, 0]


# %%
def train(core: str, updates: int = 1500, **options) -> tuple[Recall, list[float]]:
    """Train with Adam; return the model and the share of right answers in each update."""
    model = Recall(core, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    right = []
    for _ in range(updates):
        words, answer = draw(64)
        logits, _ = model(words)
        loss = nn.functional.cross_entropy(logits[-1], answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append((logits[-1].argmax(-1) == answer).float().mean().item())
    return model, right


blocks = {"layers": 2, "width": 64, "heads": 4, "feedforward": 64}
runs = {
    "delta_net": train("delta_net", **blocks),
    "rdn": train("rdn", **blocks),
    "lstm": train("lstm", width=64),
}

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for (name, (_, right)), style in zip(runs.items(), ("-", "--", "-."), strict=True):
    means = torch.tensor(right).view(-1, 50).mean(1)
    axes.plot(torch.arange(1, len(means) + 1) * 50, means, style, label=name)
axes.axhline(1 / DIGITS, color="grey", linestyle=":", label="chance, 1 of 8")
axes.set(xlabel="updates", ylabel="share of right answers", ylim=(0, 1.02))
axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# A model that remembers which digits it saw, but not with which letter, guesses among four of them.
# The DeltaNet stays there: it writes what one word says, and a letter and its digit are two words.
# The RDN also sees its last output when it writes, so it can link the two. The LSTM begins to.

# %% [markdown]
# ## The state
#
# One call may hold several sequences in a row. `is_first` marks where a new one begins: the core
# forgets the state before it reads that step. Here the second half of the call is a new sequence,
# and its outputs equal those of a call of its own.

# %%
model, _ = runs["rdn"]
words, _ = draw(5)
twice = torch.cat([words, words])
is_first = torch.zeros(twice.shape, dtype=torch.bool)
is_first[len(words)] = True
with torch.no_grad():
    together, _ = model(twice, is_first=is_first)
    alone, _ = model(words)
torch.testing.assert_close(together[len(words) :], alone)

# %% [markdown]
# The state is a tuple of NamedTuples, one per layer. For an RDN it holds one matrix of fast
# weights for each head. Each pair of letter and digit is a write into it.

# %%
with torch.no_grad():
    _, state = model(words)
weights = state[0].fast_weights[0]  # first layer, first sequence: [heads, key, value]
figure, panels = plt.subplots(1, len(weights), figsize=(7, 2), layout="constrained")
largest = weights.abs().max()
for head, (panel, matrix) in enumerate(zip(panels, weights, strict=True), start=1):
    panel.imshow(matrix, cmap="PuOr_r", vmin=-largest, vmax=largest)
    panel.set(title=f"head {head}", xticks=[], yticks=[], xlabel="value", ylabel="key")
plt.show()
