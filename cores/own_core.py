"""Cores from users' modules: what `my_module:name` must be, and what its core must return."""

import json
import traceback
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fastweights.cores.core import Core, unroll_by_steps
from fastweights.cores.inputs import state_difference
from fastweights.cores.kind import CoreKind
from fastweights.host import did_you_mean, one_line
from fastweights.kernels import tensors_of

_STEPS, _STREAMS = 3, 2
_TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}  # another order of sums
_NOT_THE_USERS = Path(__file__).parents[1], Path(torch.__file__).parent


def kind_in(module: ModuleType, attribute: str) -> CoreKind:
    """Return the kind that a module has under this name.

    Raises:
        ValueError: there is none, it is not a kind, or its options are not plain values; one line.
    """
    name, found = f"{module.__name__}:{attribute}", vars(module).get(attribute)
    if not isinstance(found, CoreKind):
        kinds = [one for one, value in vars(module).items() if isinstance(value, CoreKind)]
        place = getattr(module, "__file__", None) or "built in"
        raise ValueError(
            f"{name} {_described(found)}: it must be a CoreKind, as built by `alone` and `stacked` "
            f"in fastweights.cores; {place} has {', '.join(kinds) or 'none'}"
            f"{did_you_mean(attribute, kinds)}"
        )
    try:
        if not is_dataclass(found.config) or isinstance(found.config, type):
            raise TypeError(f"{_type_of(found.config)} is not an instance of a dataclass")
        json.dumps(asdict(found.config))
    except TypeError as error:
        raise ValueError(
            f"the options of {name} must be a dataclass of plain values: {error}"
        ) from error
    return found


def _described(found: Any) -> str:
    if found is None:
        return "is not there"
    return f"is {'the class' if isinstance(found, type) else 'a'} {_type_of(found)}"


def _type_of(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def check_core(name: str, core: Any, input_size: int) -> None:
    """Raise a one-line `ValueError` unless a core obeys the interface on a few sample inputs.

    A fresh state is zero; its tensors have torch's default dtype and the batch axis first. `step`
    and `unroll` return an output and such a state. `unroll` equals a loop of steps with resets, and
    the streams of a batch do not influence each other. Draws no random numbers. On the device
    `meta`, which computes nothing, only the core's type and sizes are checked.

    Args:
        name: the core's name, for messages.
        core: the object to check.
        input_size: D, the size that it was built for.
    """
    if not isinstance(core, Core):
        raise ValueError(f"{name} builds a {type(core).__name__}, not a fastweights.cores.Core")
    sizes = [getattr(core, size, None) for size in ("input_size", "output_size")]
    if sizes[0] != input_size or type(sizes[1]) is not int or sizes[1] < 1:
        raise ValueError(
            f"{name} must set input_size to {input_size}, as it was built with, and output_size to "
            f"a whole number of at least 1, not to {sizes[0]} and {sizes[1]}"
        )
    if torch.get_default_device().type == "meta":
        return
    was_training = core.training
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        core.eval()
        try:
            problem = _problem(core)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ValueError(f"{name}: {_raised(error)}") from error
        core.train(was_training)
    if problem:
        raise ValueError(f"{name} breaks the interface of cores (docs/cores.md): {problem}")


def _raised(error: Exception) -> str:
    """Describe an error of the core's methods in one line, with the place in the user's code."""
    said = one_line(str(error).partition("\n")[0])
    frames = traceback.extract_tb(error.__traceback__)
    places = [
        f" ({Path(frame.filename).name}, line {frame.lineno})"
        for frame in frames
        if not any(map(Path(frame.filename).is_relative_to, _NOT_THE_USERS))
    ]
    where = places[-1] if places else ""
    return f"initial_state(), step() or unroll() raised {type(error).__name__}: {said}{where}"


def _problem(core: Core) -> str | None:
    """Return what is wrong with a core's results; None if nothing is."""
    fresh = core.initial_state(_STREAMS)
    if problem := _of_fresh(fresh, "initial_state()"):
        return problem
    x = torch.linspace(-1, 1, _STEPS * _STREAMS * core.input_size)
    x = x.view(_STEPS, _STREAMS, core.input_size)
    is_first = torch.zeros(_STEPS, _STREAMS, dtype=torch.bool)
    is_first[1, 0] = True
    shape = (_STREAMS, core.output_size)
    if problem := _of_answer(core.step(x[0], fresh), fresh, shape):
        return f"step() {problem}"
    unrolled = core.unroll(x, fresh, is_first)
    if problem := _of_answer(unrolled, fresh, (_STEPS, *shape)):
        return f"unroll() {problem}"
    if _of_fresh(fresh, "state"):
        return "step() or unroll() modifies its state argument: return a new state"
    expected, last = unroll_by_steps(core, x, fresh, is_first)
    pairs = zip(tensors_of((expected, last)), tensors_of(unrolled), strict=True)
    if not _equal(pairs):
        return "unroll() differs from a loop of step() with the state reset where is_first is true"
    alone, _ = core.unroll(x[:, :1], core.initial_state(1), is_first[:, :1])
    if not _equal([(alone, expected[:, :1])]):
        return "a stream's output depends on the other streams of the batch"
    return None


def _equal(pairs: Iterable[tuple[Tensor, Tensor]]) -> bool:
    return all(torch.allclose(one, other, **_TOLERANCE, equal_nan=True) for one, other in pairs)


def _of_answer(answer: Any, fresh: Any, shape: tuple[int, ...]) -> str | None:
    """Return what is wrong with an output of this shape and a state like `fresh`."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        return f"returns a {type(answer).__name__}: return the output and the next state"
    y, state = answer
    dtype = torch.get_default_dtype()
    if not isinstance(y, Tensor) or y.shape != shape or y.dtype != dtype:
        found = f"{y.dtype} {list(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        return f"returns the output {found}, which must be {dtype} {list(shape)}"
    return state_difference(state, fresh, "returns an invalid state: state")


def _of_fresh(state: Any, where: str) -> str | None:
    """Return what is wrong with a fresh state."""
    if not isinstance(state, tuple):
        return f"{where} is a {type(state).__name__}: return a NamedTuple of tensors [B, ...]"
    fields = getattr(state, "_fields", None)
    if not fields and any(isinstance(part, Tensor) for part in state):
        return f"{where} is a plain tuple of tensors: return a NamedTuple of them"
    for i, part in enumerate(state):
        place = f"{where}.{fields[i]}" if fields else f"{where}[{i}]"
        if not isinstance(part, Tensor):
            if problem := _of_fresh(part, place):
                return problem
        elif part.dtype != torch.get_default_dtype() or part.shape[:1] != (_STREAMS,) or part.any():
            return (
                f"{where} for {_STREAMS} streams has a tensor of {part.dtype} {list(part.shape)}: "
                f"return zeros of {torch.get_default_dtype()} [{_STREAMS}, ...]"
            )
    return None
