"""The one interface of every memory: a fresh state, one step, an unroll that can forget.

`step` is the definition, as the paper writes it: plain PyTorch, but for the feature maps of its
inputs, which have a kernel that `kernels.backend("reference")` leaves out. `unroll` is the
implementation that training and acting use; one test over all cores shows that they agree.
"""

import abc
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.inputs import check_inputs
from fastweights.kernels.recurrence import State, forget, map_state


class Core(nn.Module, abc.ABC):
    """A recurrent network from input x to output y with a state that is zero when fresh.

    A state is a NamedTuple of float32 tensors, batch axis first, never mutated, differentiable.
    """

    input_size: int
    output_size: int
    state_form: Any = None  # `check_inputs` keeps here what a state of this core looks like

    @abc.abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """A fresh state: zeros, on the parameters' device."""

    @abc.abstractmethod
    def step(self, x: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B E"], State]:
        """One time step."""

    def inspect(self, x: Float[Tensor, "B D"], state: State) -> list[dict[str, Tensor]]:
        """The inside of one step, for people to look at: named tensors [B, ...], a dict a layer.

        The state's tensors are those after the step; without memory there is no layer. A core
        that reads and writes with more than its state (keys, gates) adds it under the names that
        `docs/notation.md` lists.
        """
        _, after = self.step(x, state)
        return [after._asdict()] if after else []

    @abc.abstractmethod
    def unroll(
        self, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], State]:
        """All time steps; where `is_first[t]`, the state is forgotten before x[t] is consumed.

        Raises:
            ValueError: x, state or is_first has another shape or type than this core's.
        """

    def forward(
        self, x: Tensor, state: State | None = None, is_first: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Unrolls: `y, state = core(x)`, `core(x, state)` or `core(x, state, is_first)`.

        Args:
            x: inputs [T, B, D] with D `input_size`, in the parameters' dtype.
            state: what an earlier call returned; None is a fresh one.
            is_first: bool [T, B], where to forget before x[t] is consumed; None is nowhere.

        Returns:
            The outputs [T, B, E] with E `output_size`, and the state after the last step.

        Raises:
            ValueError: as `unroll`.
        """
        if x.ndim != 3:
            check_inputs(self, x, state, x)  # which says what is wrong
        if state is None:
            state = self.initial_state(x.shape[1])
        if is_first is None:
            is_first = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        return self.unroll(x, state, is_first)


def detach(state: State) -> State:
    """The same numbers, through which no gradient reaches what came before."""
    return map_state(Tensor.detach, state)


def unroll_truncated(
    core: Core,
    x: Float[Tensor, "T B D"],
    state: State,
    is_first: Bool[Tensor, "T B"],
    bptt: int | None,
) -> tuple[Float[Tensor, "T B E"], State]:
    """`core.unroll` whose gradient reaches back at most `bptt` steps; None lets it reach all.

    The unroll is cut into pieces of `bptt` steps and the state detached before each, the first
    included. One step is how the published fast-weight agents were trained: each step learns from
    its own write only.
    """
    if bptt is None or bptt >= x.shape[0]:
        return core.unroll(x, state, is_first)
    outputs = []
    for piece, first in zip(x.split(bptt), is_first.split(bptt), strict=True):
        y, state = core.unroll(piece, detach(state), first)
        outputs.append(y)
    return torch.cat(outputs), state


def unroll_by_steps(
    core: Core, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
) -> tuple[Float[Tensor, "T B E"], State]:
    """The definition of `unroll`: forget, then step. Slow; for tests and for new cores."""
    check_inputs(core, x, state, is_first)
    outputs = []
    for x_t, first in zip(x, is_first, strict=True):
        y, state = core.step(x_t, forget(state, first))
        outputs.append(y)
    return torch.stack(outputs), state
