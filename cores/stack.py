"""A deep memory: residual blocks, each a fast-weight layer and a feed-forward network.

    pre-norm:   x = x + project(memory(LayerNorm(x)));  x = x + feedforward(LayerNorm(x))
    post-norm:  x = LayerNorm(x + project(memory(x)));  x = LayerNorm(x + feedforward(x))
    legacy_pre: n = LayerNorm(x);  x = n + project(memory(n));  x = x + feedforward(LayerNorm(x))

Residual blocks without positions or a final LayerNorm. Dropout, where asked for, is of both
branches and of the hidden units.
Source: Irie et al. 2021, section 4.4 and appendices B.2 and C; post-norm: Vaswani et al. 2017;
legacy_pre: the published code of RDN's and Delta RNN's language models, where the paper has pre.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs
from fastweights.host.names import unknown
from fastweights.kernels.recurrence import State


@dataclass(frozen=True, kw_only=True)
class BlocksConfig:
    """What all stacks have; defaults are the published small agent's."""

    layers: int = 2
    """Number of residual blocks."""
    width: int = 128
    """Number of units; of a stack, heads times the size of a head."""
    heads: int = 4
    """Number of memories side by side in each layer; must divide the width."""
    feedforward: int = 512
    """Number of hidden units of each block's feed-forward network."""
    norm: str = "pre"
    """LayerNorm before each branch of a residual block or after it: pre, post, or the published
    legacy_pre."""
    # The published language models have head_size, the other published models one.
    output_scale: str = "one"
    """Factor of a memory's output: one, or head_size (1 / sqrt of it)."""
    embed: str = "linear"
    """Map from the input to the model width: linear, or none where the input has that width."""
    dropout: float = 0.0
    """Share of units left out in training (Irie et al. 2021, B.2: 0.1)."""

    def of_memory(self) -> tuple[Any, ...]:
        """What each block's memory is built from."""
        return self.width, self.heads


@dataclass(frozen=True, kw_only=True)
class StackConfig(BlocksConfig):
    """Sizes of a stack whose memories map their keys and queries."""

    # A fast RNN's last output and Delta MLP's inner query have a softmax anyway.
    feature_map: str = "softmax"
    """Feature map of keys and queries: softmax, elu_sum, elu, identity, unit or silu_unit (both of
    Euclidean length one). Delta rules want softmax or elu_sum, whose keys sum to one, or
    one of the last two."""

    def of_memory(self) -> tuple[Any, ...]:
        return *super().of_memory(), self.feature_map


@dataclass(frozen=True, kw_only=True)
class DeltaRuleConfig(StackConfig):
    """A stack whose memories write by the delta rule."""

    # Grazzi et al. 2025: a write multiplies what a key of length one answers by 1 - beta.
    max_write_strength: int = 1
    """Largest write strength beta, 1 or 2: the factor of its sigmoid. With 2 and the feature
    map unit or silu_unit a write can turn an answer into its negative, which tracking a state such
    as a parity needs."""

    def of_memory(self) -> tuple[Any, ...]:
        return *super().of_memory(), self.max_write_strength


@dataclass(frozen=True, kw_only=True)
class VersionedConfig(DeltaRuleConfig):
    """A stack whose fast network has versions."""

    version: str = "B"
    """Version of the fast network by the paper's letter (Irie et al. 2021, A.2): A or B; of the
    Delta LSTM A, B, C or D."""

    def of_memory(self) -> tuple[Any, ...]:
        return *super().of_memory(), self.version


@dataclass(frozen=True, kw_only=True)
class FastRecurrentConfig(VersionedConfig):
    """A stack whose fast network is recurrent."""

    # The published code has softmax for these, and for the other keys the same in its agents,
    # elu_sum in its sequence tasks.
    recurrent_feature_map: str | None = None
    """Feature map of the recurrent keys, if it is another."""

    def of_memory(self) -> tuple[Any, ...]:
        return *super().of_memory(), self.recurrent_feature_map or self.feature_map


class Block(Core):
    """One residual block around a memory."""

    def __init__(self, memory: Core, config: BlocksConfig):
        super().__init__()
        norm = chosen("norm", config.norm, ("pre", "post", "legacy_pre"))
        self.is_pre_norm, self.adds_to_normalised = norm != "post", norm == "legacy_pre"
        scale = chosen("output_scale", config.output_scale, ("one", "head_size"))
        self.scale = 1.0 if scale == "one" else (config.width // config.heads) ** -0.5
        width, feedforward = config.width, config.feedforward
        self.input_size = self.output_size = width
        self.memory = memory
        self.memory_norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, width, bias=False)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, feedforward),
            nn.Sequential(nn.ReLU(), nn.Dropout(config.dropout)),
            nn.Linear(feedforward, width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def initial_state(self, batch_size: int) -> State:
        return self.memory.initial_state(batch_size)

    def step(self, x: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        read = self._read(x)
        y, state = self.memory.step(read, state)
        return self._add(x, read, y), state

    def inspect(self, x: Float[Tensor, "B D"], state: State) -> list[dict[str, Tensor]]:
        return self.memory.inspect(self._read(x), state)

    def unroll(
        self, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B D"], State]:
        read = self._read(x)
        y, state = self.memory.unroll(read, state, is_first)
        return self._add(x, read, y), state

    def _read(self, x: Tensor) -> Tensor:
        return self.memory_norm(x) if self.is_pre_norm else x

    def _add(self, x: Tensor, read: Tensor, remembered: Tensor) -> Tensor:
        x = read if self.adds_to_normalised else x
        projected = self.project(remembered)
        x = x + self.dropout(projected if self.scale == 1 else self.scale * projected)
        if self.is_pre_norm:
            return x + self.dropout(self.feedforward(x))
        x, norm, network = self.memory_norm(x), self.feedforward[0], self.feedforward[1:]
        return norm(x + self.dropout(network(x)))


class Stack(Core):
    """A linear map to the model width, then `config.layers` blocks of one kind of memory."""

    def __init__(
        self,
        input_size: int,
        config: BlocksConfig,
        memory: Callable[..., Core],
    ):
        super().__init__()
        self.input_size, self.output_size = input_size, config.width
        self.embed = embed(input_size, config)
        self.blocks = nn.ModuleList(
            Block(memory(*config.of_memory()), config) for _ in range(config.layers)
        )

    def initial_state(self, batch_size: int) -> tuple:
        return tuple(block.initial_state(batch_size) for block in self.blocks)

    def step(self, x: Float[Tensor, "B D"], state: tuple) -> tuple[Float[Tensor, "B E"], tuple]:
        return self._through(x, state, lambda block, y, block_state: block.step(y, block_state))

    def unroll(
        self, x: Float[Tensor, "T B D"], state: tuple, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], tuple]:
        check_inputs(self, x, state, is_first)
        return self.unroll_unchecked(x, state, is_first)

    def unroll_unchecked(
        self, x: Float[Tensor, "T B D"], state: tuple, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], tuple]:
        """For the core that has this stack inside, and has checked what it was given."""
        return self._through(
            x, state, lambda block, y, block_state: block.unroll(y, block_state, is_first)
        )

    def inspect(self, x: Float[Tensor, "B D"], state: tuple) -> list[dict[str, Tensor]]:
        layers = []

        def look(block: Block, y: Tensor, block_state: State) -> tuple[Tensor, State]:
            layers.extend(block.inspect(y, block_state))
            return block.step(y, block_state)

        self._through(x, state, look)
        return layers

    def _through(
        self, x: Tensor, state: tuple, apply: Callable[..., tuple[Tensor, State]]
    ) -> tuple[Tensor, tuple]:
        y, states = self.embed(x), []
        for block, block_state in zip(self.blocks, state, strict=True):
            y, block_state = apply(block, y, block_state)
            states.append(block_state)
        return y, tuple(states)


def chosen(option: str, value: str, known: Sequence[str]) -> str:
    """Returns `value`; raises a `ValueError` that lists the known ones if it is none of them."""
    if value not in known:
        raise ValueError(unknown(option, value, known))
    return value


def embed(input_size: int, config: BlocksConfig) -> nn.Module:
    """What brings an input to the model width."""
    if chosen("embed", config.embed, ("linear", "none")) == "linear":
        return nn.Linear(input_size, config.width)
    if input_size != config.width:
        raise ValueError(
            f"without a linear map the input's size {input_size} must be the width {config.width}"
        )
    return nn.Identity()
