"""A deep memory: residual blocks, each a fast-weight layer and a feed-forward network.

    pre-norm:   x = x + project(memory(LayerNorm(x)));  x = x + feedforward(LayerNorm(x))
    post-norm:  x = LayerNorm(x + project(memory(x)));  x = LayerNorm(x + feedforward(x))
    legacy_pre: n = LayerNorm(x);  x = n + project(memory(n));  x = x + feedforward(LayerNorm(x))
    legacy_raw: n = LayerNorm(x);  x = n + project(memory(x));  x = x + feedforward(LayerNorm(x))

The blocks have no positional encodings and no final LayerNorm. Dropout applies to both branches and
to the hidden units. A short convolution over time may precede the first block.
Source: Irie et al. 2021, section 4.4 and appendices B.2 and C; post-norm: Vaswani et al. 2017;
legacy_pre: the published code of fast-weight language models, where the paper has pre;
legacy_raw: the published code of self-referential matrices on formal languages (Irie et al. 2023).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.chain import inspected, through
from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.short_convolution import ShortConvolution
from fastweights.host import one_of
from fastweights.kernels import State


@dataclass(frozen=True, kw_only=True)
class BlocksConfig:
    """Options of all stacks; the defaults are the published small agent's."""

    layers: int = 2
    """Number of residual blocks."""
    width: int = 128
    """Number of units; in a stack, the number of heads times the head size."""
    heads: int = 4
    """Number of memories per layer; must divide the width."""
    feedforward: int = 512
    """Number of hidden units of feed-forward networks."""
    norm: str = "pre"
    """LayerNorm of residual blocks: pre, post, or the published legacy_pre or legacy_raw."""
    # Most published language models use head_size, all other published models use one.
    output_scale: str = "one"
    """Factor of a memory's output: one, or head_size (1 / sqrt of it)."""
    embed: str = "linear"
    """Map from the input to the model width: linear, or none if the sizes are equal."""
    dropout: float = 0.0
    """Dropout rate in training (Irie et al. 2021, B.2: 0.1)."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return self.width, self.heads


@dataclass(frozen=True, kw_only=True)
class ConvolvedConfig(BlocksConfig):
    """Options of a stack that may begin with a short convolution over time."""

    convolution: int = 1
    """Number of time steps, the current one included, of a convolution over time before the blocks
    (1: none)."""


@dataclass(frozen=True, kw_only=True)
class StackConfig(ConvolvedConfig):
    """Options of a stack whose memories map their keys and queries."""

    # A fast RNN's last output and Delta MLP's inner query always go through a softmax.
    feature_map: str = "softmax"
    """Feature map of keys and queries: softmax or elu_sum (sum 1), unit or silu_unit (Euclidean
    norm 1), elu or identity. Delta rules need one of the first four to stay bounded."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.feature_map


@dataclass(frozen=True, kw_only=True)
class DeltaRuleConfig(StackConfig):
    """Options of a stack whose memories write by the delta rule."""

    # Grazzi et al. 2025: a write multiplies the value stored at a key of length one by 1 - beta.
    max_write_strength: int = 1
    """Maximum write strength beta: 1 or 2. It scales beta's sigmoid. With 2 and the feature map
    unit or silu_unit, a write can negate a stored value, which state tracking such as parity
    requires."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.max_write_strength


@dataclass(frozen=True, kw_only=True)
class VersionedConfig(DeltaRuleConfig):
    """Options of a stack whose fast network has versions."""

    version: str = "B"
    """Version of the fast network (Irie et al. 2021, A.2): A or B; for the Delta LSTM, A, B, C or
    D."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.version


@dataclass(frozen=True, kw_only=True)
class FastRecurrentConfig(VersionedConfig):
    """Options of a stack whose fast network is recurrent."""

    # The published code uses softmax for these keys. For the other keys it uses softmax in agents
    # and elu_sum in sequence tasks.
    recurrent_feature_map: str | None = None
    """Feature map of the recurrent keys, if different."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.recurrent_feature_map or self.feature_map


class Block(Core):
    """One residual block around a memory: x [..., D] -> [..., D]."""

    def __init__(self, memory: Core, config: BlocksConfig):
        super().__init__()
        norm = one_of("norm", config.norm, ("pre", "post", "legacy_pre", "legacy_raw"))
        self.is_post_norm = norm == "post"
        self.reads_normalised = norm in ("pre", "legacy_pre")
        self.adds_to_normalised = norm in ("legacy_pre", "legacy_raw")
        scale = one_of("output_scale", config.output_scale, ("one", "head_size"))
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
        """Return the memory's fresh state."""
        return self.memory.initial_state(batch_size)

    def step(self, x: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Compute one step of the memory inside the block."""
        read, base = self._branches(x)
        y, state = self.memory.step(read, state)
        return self._add(base, y), state

    def inspect(self, x: Float[Tensor, "B D"], state: State) -> list[dict[str, Tensor]]:
        """Return the memory's dict, for the input that the block gives it."""
        return self.memory.inspect(self._branches(x)[0], state)

    def unroll(
        self, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B D"], State]:
        """Unroll the memory inside the block; see `Core.unroll`."""
        read, base = self._branches(x)
        y, state = self.memory.unroll(read, state, is_first)
        return self._add(base, y), state

    def _branches(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory's input, and the tensor to which its output is added."""
        if self.is_post_norm:
            return x, x
        normalised = self.memory_norm(x)
        read = normalised if self.reads_normalised else x
        return read, normalised if self.adds_to_normalised else x

    def _add(self, base: Tensor, remembered: Tensor) -> Tensor:
        projected = self.project(remembered)
        x = base + self.dropout(projected if self.scale == 1 else self.scale * projected)
        if not self.is_post_norm:
            return x + self.dropout(self.feedforward(x))
        x, norm, network = self.memory_norm(x), self.feedforward[0], self.feedforward[1:]
        return norm(x + self.dropout(network(x)))


class Stack(Core):
    """A linear map to the model width, then `config.layers` blocks of one kind of memory.

    If `config.convolution` is above 1, a short convolution over time lies between the two. Its
    state comes first.

    Args:
        input_size: D of the input.
        config: sizes and options; `output_size` is `config.width`.
        memory: constructor that takes the values of `config.of_memory()`.
    """

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
        taps = config.convolution if isinstance(config, ConvolvedConfig) else 1
        self.convolution = ShortConvolution(config.width, taps) if taps > 1 else None

    @property
    def parts(self) -> list[Core]:
        """The convolution, if there is one, and the blocks, in order."""
        return [*([] if self.convolution is None else [self.convolution]), *self.blocks]

    def initial_state(self, batch_size: int) -> tuple:
        """Return a tuple of each part's fresh state."""
        return tuple(part.initial_state(batch_size) for part in self.parts)

    def step(self, x: Float[Tensor, "B D"], state: tuple) -> tuple[Float[Tensor, "B E"], tuple]:
        """Apply one step of every part in order."""
        check_step(self, x, state)
        return self.step_unchecked(x, state)

    def step_unchecked(
        self, x: Float[Tensor, "B D"], state: tuple
    ) -> tuple[Float[Tensor, "B E"], tuple]:
        """Step without `check_step`, for cores that have already checked their arguments."""
        y = self.embed(x)
        return through(self.parts, y, state, lambda part, y, before: part.step(y, before))

    def unroll(
        self, x: Float[Tensor, "T B D"], state: tuple, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], tuple]:
        """Unroll one part after the other over the whole sequence."""
        check_inputs(self, x, state, is_first)
        return self.unroll_unchecked(x, state, is_first)

    def unroll_unchecked(
        self, x: Float[Tensor, "T B D"], state: tuple, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], tuple]:
        """Unroll without `check_inputs`, for cores that have already checked their arguments."""
        y = self.embed(x)
        return through(
            self.parts, y, state, lambda part, y, before: part.unroll(y, before, is_first)
        )

    def inspect(self, x: Float[Tensor, "B D"], state: tuple) -> list[dict[str, Tensor]]:
        """Return the dicts of all parts, in order."""
        check_step(self, x, state)
        return inspected(self.parts, self.embed(x), state)


def embed(input_size: int, config: BlocksConfig) -> nn.Module:
    """Return the map from the input to the model width: linear, or none.

    Raises:
        ValueError: an unknown map, or none for an input of another width.
    """
    if one_of("embed", config.embed, ("linear", "none")) == "linear":
        return nn.Linear(input_size, config.width)
    if input_size != config.width:
        raise ValueError(
            f"without a linear map the input's size {input_size} must be the width {config.width}"
        )
    return nn.Identity()
