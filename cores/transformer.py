"""Transformer: residual blocks with softmax attention over the episode's last steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.cores.attention import Attention
from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone
from fastweights.cores.stack import BlocksConfig, Stack, embed
from fastweights.host import one_of
from fastweights.kernels.attention import Window, attention_positions

LONGEST_WAVE = 10_000  # steps, divided by 2 pi


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(BlocksConfig):
    """Sizes, window and positions of the Transformer."""

    window: int = 64
    """Number of time steps to attend to; in sequence tasks all, unless set."""
    positions: str = "sinusoidal"
    """Positional encoding, counted from the episode's start: sinusoidal or none."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.window


class TransformerState(NamedTuple):
    """Keys and values of the last M steps, newest last; slots not yet filled are zero."""

    keys: Float[Tensor, "B L H M K"]
    values: Float[Tensor, "B L H M K"]
    count: Float[Tensor, "B 1"]  # steps since the episode began


class Transformer(Core):
    """A decoder with a bounded memory; heads and feed-forward networks are as in `Stack`."""

    equation = "y_t = sum_j softmax_j(k_j^T q_t / sqrt(K)) v_j;  j = t - M + 1 .. t"
    source = "Vaswani et al. 2017"

    def __init__(self, input_size: int, config: TransformerConfig | None = None):
        super().__init__()
        config = config or TransformerConfig()
        self.input_size, self.output_size = input_size, config.width
        self.positions = one_of("positions", config.positions, ("sinusoidal", "none"))
        self.embed = embed(input_size, config)
        self.stack = Stack(config.width, replace(config, embed="none"), Attention)

    def initial_state(self, batch_size: int) -> TransformerState:
        """Return empty windows [B, L, H, M, K] and a count of zero."""
        return _together(self.stack.initial_state(batch_size))

    def step(
        self, x: Float[Tensor, "B D"], state: TransformerState
    ) -> tuple[Float[Tensor, "B E"], TransformerState]:
        """Add the positional encoding, then attend to the window that ends with x [B, D]."""
        check_step(self, x, state)
        x = self._placed(x, state.count[:, 0])
        y, windows = self.stack.step_unchecked(x, _layers(state))
        return y, _together(windows)

    def unroll(
        self, x: Float[Tensor, "T B D"], state: TransformerState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], TransformerState]:
        """Add the positional encodings, then attend to all windows; see `Core.unroll`."""
        check_inputs(self, x, state, is_first)
        x = self._placed(x, attention_positions(is_first, state.count))
        y, windows = self.stack.unroll_unchecked(x, _layers(state), is_first)
        return y, _together(windows)

    def inspect(self, x: Float[Tensor, "B D"], state: TransformerState) -> list[dict[str, Tensor]]:
        """Return the state after the step and `attention` [B, L, H, M], all layers in one dict."""
        check_step(self, x, state)
        layers = self.stack.inspect(self._placed(x, state.count[:, 0]), _layers(state))
        after = _together([Window(*(layer[name] for name in Window._fields)) for layer in layers])
        return [after._asdict() | {"attention": torch.stack([a["attention"] for a in layers], 1)}]

    def _placed(self, x: Float[Tensor, "*batch D"], position: Float[Tensor, "*batch"]) -> Tensor:
        x = self.embed(x)
        if self.positions == "none":
            return x
        return x + sinusoids(position, self.output_size)


KIND = alone(Transformer, "Softmax attention", TransformerConfig(), attends=True)


def sinusoids(position: Float[Tensor, "*batch"], width: int) -> Float[Tensor, "*batch D"]:
    """Return sines, then cosines, with wavelengths from 2 pi to 10,000 times 2 pi (section 3.5)."""
    half = -(-width // 2)
    wave = torch.arange(half, dtype=position.dtype, device=position.device)
    angles = position.unsqueeze(-1) * LONGEST_WAVE ** (-wave / half)
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :width]


def _layers(state: TransformerState) -> tuple[Window, ...]:
    layers = zip(state.keys.unbind(1), state.values.unbind(1), strict=True)
    return tuple(Window(keys, values, state.count) for keys, values in layers)


def _together(windows: Sequence[Window]) -> TransformerState:
    keys, values, counts = zip(*windows, strict=True)
    return TransformerState(torch.stack(keys, 1), torch.stack(values, 1), counts[0])
