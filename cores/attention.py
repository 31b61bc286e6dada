"""Softmax attention as a memory: the keys and values of the last steps, uncompressed.

Source: Vaswani et al. 2017, section 3.2. `transformer.py` builds a core from it.
"""

from jaxtyping import Float
from torch import Tensor

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet
from fastweights.kernels.attention import Window, attention, step, weights


class Attention(FastWeightCore):
    """Multi-head attention over a window of the last steps, without feature maps."""

    operation, reference_step = staticmethod(attention), staticmethod(step)

    def __init__(self, width: int, heads: int, window: int):
        super().__init__(width, heads, "identity")
        self.window = window
        self.slow_net = SlowNet(width, heads, (self.value(),) * 3)

    def initial_state(self, batch_size: int) -> Window:
        """Return an empty window: keys and values [B, H, M, D / H] and a count [B, 1] of zero."""
        slots = batch_size, self.heads, self.window, self.head_size
        return Window(self.zeros(*slots), self.zeros(*slots), self.zeros(batch_size, 1))

    def inspect(self, x: Float[Tensor, "B D"], state: Window) -> list[dict[str, Tensor]]:
        """Return the window after the step, and the weight of each slot, `attention` [B, H, M]."""
        _, after = self.step(x, state)
        return [after._asdict() | {"attention": weights(self.program(x)[0], after)}]
