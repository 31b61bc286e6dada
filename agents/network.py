"""The agent's network: stem -> core -> policy and value heads.

The core's input is the stem's features, the last reward, clipped, and optionally the last action.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from fastweights.agents.stem import apply_over_time, build_stem
from fastweights.agents.value_head import ValueHead
from fastweights.cores import build_core, core_kind, unroll_truncated
from fastweights.host import one_of
from fastweights.kernels import State, forget


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network's configuration in plain values, from which a checkpoint rebuilds it."""

    frame_shape: tuple[int, ...]  # (channels, height, width) in pixels, or (size,)
    num_actions: int
    core: str
    core_options: tuple[tuple[str, Any], ...] = ()  # overrides of the core's published defaults
    stem: str = "auto"
    precision: str = "float32"  # of the stem's convolutions: float32 or bfloat16
    channels_last: bool = True  # memory layout of the stem's images and weights
    feed_last_action: bool = False  # one-hot, to the core; not in the published agent
    reset_inputs: bool = False  # an episode's first reward and last action, as input, are 0
    bptt: int | None = None  # steps to backpropagate through the core; None: all
    head_norm: bool = False  # normalise the core's output before the heads
    head_init: str = "torch"  # initial weights of the heads; see `RunOptions.head_init`
    value_scale: float = 1.0  # unit of the value head's output, in discounted returns
    normalize_values: bool = False  # let that unit follow the value targets

    def __post_init__(self) -> None:
        one_of("head_init", self.head_init, ("torch", "orthogonal"))


class NetworkOutput(NamedTuple):
    """The outputs of the heads; `Network.step` has no time axis."""

    policy_logits: Float[Tensor, "*T B A"]
    value: Float[Tensor, "*T B"]


class Network(nn.Module):
    """The network for acting (T = 1) and learning."""

    def __init__(self, config: NetworkConfig):
        super().__init__()
        self.config = config
        self.stem = build_stem(
            config.stem,
            config.frame_shape,
            core_kind(config.core).features,
            precision=config.precision,
            channels_last=config.channels_last,
        )
        extra = 1 + (config.num_actions if config.feed_last_action else 0)
        core_input = self.stem.output_size + extra
        self.core = build_core(config.core, core_input, **dict(config.core_options))
        size = self.core.output_size
        self.head_norm = nn.LayerNorm(size) if config.head_norm else nn.Identity()
        self.policy = nn.Linear(size, config.num_actions)
        self.value = ValueHead(size, config.value_scale, config.normalize_values)
        if config.head_init == "orthogonal":
            _draw_orthogonal(self.policy, gain=0.01)
            _draw_orthogonal(self.value, gain=1.0)

    def initial_state(self, batch_size: int) -> State:
        """Return a fresh core state for `batch_size` streams."""
        return self.core.initial_state(batch_size)

    def forward(
        self,
        frame: Shaped[Tensor, "T B *frame"],
        reward: Float[Tensor, "T B"],
        is_first: Bool[Tensor, "T B"],
        last_action: Int[Tensor, "T B"],
        state: State,
    ) -> tuple[NetworkOutput, State]:
        """Return policy logits and values for T rows of B streams, and the state after them.

        Frames are uint8 pictures or float vectors; rewards are unclipped.
        """
        x = self._core_input(frame, reward, is_first, last_action)
        y, state = unroll_truncated(self.core, x, state, is_first, self.config.bptt)
        return self._heads(y), state

    def step(
        self,
        frame: Shaped[Tensor, " B *frame"],
        reward: Float[Tensor, " B"],
        is_first: Bool[Tensor, " B"],
        last_action: Int[Tensor, " B"],
        state: State,
    ) -> tuple[NetworkOutput, State]:
        """Compute one row of B streams by the core's definition, `Core.step`, without a time axis.

        Equals `forward` for T = 1, up to rounding. Exports trace this method.
        """
        (x,) = self._core_input(frame[None], reward[None], is_first[None], last_action[None])
        y, state = self.core.step(x, forget(state, is_first))
        return self._heads(y), state

    def inspect(
        self,
        frame: Shaped[Tensor, "1 B *frame"],
        reward: Float[Tensor, "1 B"],
        is_first: Bool[Tensor, "1 B"],
        last_action: Int[Tensor, "1 B"],
        state: State,
    ) -> list[dict[str, Tensor]]:
        """Return `Core.inspect` at one row, with `forward`'s arguments."""
        (x,) = self._core_input(frame, reward, is_first, last_action)
        return self.core.inspect(x, forget(state, is_first[0]))

    def _heads(self, y: Float[Tensor, "*T B E"]) -> NetworkOutput:
        y = self.head_norm(y)
        return NetworkOutput(self.policy(y), self.value(y))

    def _core_input(
        self,
        frame: Shaped[Tensor, "T B *frame"],
        reward: Float[Tensor, "T B"],
        is_first: Bool[Tensor, "T B"],
        last_action: Int[Tensor, "T B"],
    ) -> Float[Tensor, "T B D"]:
        if self.config.reset_inputs:
            reward = reward.masked_fill(is_first, 0)
            last_action = last_action.masked_fill(is_first, 0)
        parts = [apply_over_time(self.stem, frame), reward.clamp(-1, 1).unsqueeze(-1)]
        if self.config.feed_last_action:
            parts.append(F.one_hot(last_action, self.config.num_actions))
        return torch.cat([part.to(parts[0].dtype) for part in parts], -1)


def _draw_orthogonal(head: nn.Linear, gain: float) -> None:
    """Draw orthogonal weights, as PPO implementations do.

    The initial policy is then nearly uniform, and values are near 0.
    """
    nn.init.orthogonal_(head.weight, gain)
    nn.init.zeros_(head.bias)
