"""The interface of all cores: a fresh state, one step, and an unroll with resets.

`step` is the definition, written as in the paper, in plain PyTorch. Only the feature maps of its
inputs run a kernel, which `kernels.backend("reference")` turns off. `unroll` is the implementation
for training and acting. A test over all cores checks that the two agree.
"""

import abc
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.inputs import check_inputs
from fastweights.kernels import State, forget, map_state


class Core(nn.Module, abc.ABC):
    """A recurrent network that maps inputs x to outputs y; a fresh state is zero.

    A state is a NamedTuple of float32 tensors with the batch axis first. It is differentiable and
    never mutated.
    """

    input_size: int
    output_size: int
    state_form: Any = None  # types and sizes of a state of this core; set by `inputs.py`

    @abc.abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """Return a fresh state: zeros, batch axis first, on the parameters' device."""

    @abc.abstractmethod
    def step(self, x: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B E"], State]:
        """Compute one time step: the output and the next state.

        Raises:
            ValueError: x or state has another shape or dtype than this core's.
        """

    def inspect(self, x: Float[Tensor, "B D"], state: State) -> list[dict[str, Tensor]]:
        """Return the named tensors [B, ...] of one step, one dict per layer.

        The state's tensors are those after the step. Each part of a plain tuple of states belongs
        to one layer. A core without memory has no layers. Cores add the keys, gates and so on that
        they compute, under the names in `docs/notation.md`.
        """
        _, after = self.step(x, state)
        layers = [after] if hasattr(after, "_fields") else after
        return [_named(layer) for layer in layers if layer]

    @abc.abstractmethod
    def unroll(
        self, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], State]:
        """Compute all time steps. Where `is_first[t]`, the state is reset before x[t] is read.

        Raises:
            ValueError: x, state or is_first has another shape or dtype than this core's.
        """

    def forward(
        self, x: Tensor, state: State | None = None, is_first: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Unroll: `y, state = core(x)`, `core(x, state)` or `core(x, state, is_first)`.

        Args:
            x: inputs [T, B, D] with D `input_size`, in the parameters' dtype.
            state: state from an earlier call; None for a fresh state.
            is_first: bool [T, B]; the state is reset before x[t] is read. None for no reset.

        Returns:
            The outputs [T, B, E] with E `output_size`, and the state after the last step.

        Raises:
            ValueError: as in `unroll`.
            TypeError: `x` is no tensor.
        """
        if not isinstance(x, Tensor):
            raise TypeError(
                f"x must be a tensor [time, batch, {self.input_size}], not {type(x).__name__}; pad "
                "sequences of different lengths (docs/library.md)"
            )
        if x.ndim != 3:
            check_inputs(self, x, state, x)  # raises an error that names the expected shape
        if state is None:
            state = self.initial_state(x.shape[1])
        if is_first is None:
            is_first = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        return self.unroll(x, state, is_first)


def _named(state: State) -> dict[str, Tensor]:
    """Return a state's tensors by name; those of a nested state are named `outer_inner`."""
    names = getattr(state, "_fields", range(len(state)))
    found: dict[str, Tensor] = {}
    for name, part in zip(names, state, strict=True):
        if isinstance(part, Tensor):
            found[str(name)] = part
        else:
            found |= {f"{name}_{inner}": tensor for inner, tensor in _named(part).items()}
    return found


def detach(state: State | None) -> State | None:
    """Return the state without its gradient history; None (the fresh state) stays None."""
    return None if state is None else map_state(Tensor.detach, state)


def unroll_truncated(
    core: Core,
    x: Float[Tensor, "T B D"],
    state: State,
    is_first: Bool[Tensor, "T B"],
    bptt: int | None,
) -> tuple[Float[Tensor, "T B E"], State]:
    """Unroll `core` with gradients that reach back at most `bptt` steps; None for no limit.

    The sequence is cut into pieces of `bptt` steps, and the state is detached before each piece,
    including the first. The published fast-weight agents were trained with `bptt` 1: each step
    learns only from its own write.

    Raises:
        ValueError: `bptt` below 1.
    """
    if bptt is None:
        return core.unroll(x, state, is_first)
    if bptt < 1:
        raise ValueError(f"bptt must be at least 1, not {bptt}; None: no limit")
    if bptt >= x.shape[0]:
        return core.unroll(x, detach(state), is_first)
    outputs = []
    for piece, first in zip(x.split(bptt), is_first.split(bptt), strict=True):
        y, state = core.unroll(piece, detach(state), first)
        outputs.append(y)
    return torch.cat(outputs), state


def unroll_by_steps(
    core: Core, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
) -> tuple[Float[Tensor, "T B E"], State]:
    """Unroll by definition: reset, then step. Slow; for tests and for new cores."""
    check_inputs(core, x, state, is_first)
    if not len(x):
        return x.new_empty(0, x.shape[1], core.output_size), map_state(Tensor.clone, state)
    outputs = []
    for x_t, first in zip(x, is_first, strict=True):
        y, state = core.step(x_t, forget(state, first))
        outputs.append(y)
    return torch.stack(outputs), state
