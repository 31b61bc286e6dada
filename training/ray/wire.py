"""A rollout as one message of plain bytes, and back, the same to the bit.

The format is that of safetensors: a header of names, types and shapes, then numbers; reading it
executes nothing. Pictures travel unstacked (`training/ray/unstacking.py`), which is a quarter of
their size; other frames as they are. The core's state goes by the path of each tensor in it,
finished games and lives as tables of numbers.

`decode` believes nothing: it takes what a `WireForm` asks for, in exactly these types and sizes,
with finite numbers and indices in their ranges, and raises `WireError` for anything else.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from fastweights.agents.actor import Collected
from fastweights.agents.network import Network
from fastweights.agents.rollout import Rollout
from fastweights.envs.interface import Episode, Life
from fastweights.host.stages import STAGES
from fastweights.kernels.recurrence import State, map_state
from fastweights.training.ray.unstacking import Unstacked, restack, unstack
from fastweights.training.schedules.experience import Experience


class WireError(ValueError):
    """A message that is not the rollout that was expected; says what is wrong with it."""


class WireForm(NamedTuple):
    """What every rollout of a run looks like."""

    length: int  # T
    streams: int  # B
    frame_shape: tuple[int, ...]
    frame_dtype: torch.dtype
    num_actions: int
    initial_state: State  # of B streams; only its shapes and types are looked at

    @classmethod
    def of(cls, network: Network, length: int, streams: int) -> "WireForm":
        """That of rollouts by `network`."""
        shape = tuple(network.config.frame_shape)
        dtype = torch.uint8 if len(shape) == 3 else torch.float32
        state = map_state(lambda part: part.to("meta"), network.initial_state(streams))
        return cls(length, streams, shape, dtype, network.config.num_actions, state)


def encode(experience: Experience) -> bytes:
    """The message. Tensors may be on any device."""
    (rollout, episodes, lives), version = experience
    tensors = {
        **_frames(rollout.frame),
        "reward": rollout.reward,
        "is_first": rollout.is_first.to(torch.uint8),
        "last_action": rollout.last_action,
        "action": rollout.action,
        "policy_logits": rollout.policy_logits,
        # Copies: a core's tensors may overlap, and the format has no place for that.
        **{name: part.clone() for name, part in _leaves(rollout.initial_state)},
        **_games(episodes),
        **_lives(lives),
        "version": torch.tensor(version),
    }
    return save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()})


def decode(message: bytes, form: WireForm, newest: int | None = None) -> Experience:
    """The rollout of a message, on the CPU, in memory of its own, of weights up to `newest`.

    Raises:
        WireError: not a message, or not one of this form.
    """
    parts = _Parts(message)
    rows, seen = (form.length, form.streams), (form.length + 1, form.streams)
    rollout = Rollout(
        frame=_frame(parts, form),
        reward=parts.take("reward", torch.float32, seen),
        is_first=parts.index("is_first", seen, 2, torch.uint8).bool(),
        last_action=parts.index("last_action", seen, form.num_actions),
        action=parts.index("action", rows, form.num_actions),
        policy_logits=parts.take("policy_logits", torch.float32, (*rows, form.num_actions)),
        initial_state=_state(parts, form.initial_state),
    )
    collected = Collected(
        rollout, _episodes(parts, form.streams), _ended_lives(parts, form.streams)
    )
    version = int(parts.index("version", (), None if newest is None else newest + 1))
    parts.end()
    return Experience(collected, version)


def check_timed(timed: Any) -> None:
    """Raises `WireError` unless it says seconds and calls of stages that there are."""
    if not isinstance(timed, dict) or not all(map(_is_timed, timed, timed.values())):
        raise WireError(f"no times of stages: {timed!a}"[:200])


def _is_timed(stage: Any, spent: Any) -> bool:
    if stage not in STAGES or not isinstance(spent, tuple) or len(spent) != 2:
        return False
    seconds, calls = spent
    is_time = type(seconds) is float and 0 <= seconds < float("inf")
    return is_time and type(calls) is int and calls >= 0


class _Parts:
    """A message's tensors, each to be taken once."""

    def __init__(self, message: bytes) -> None:
        try:
            self._tensors = load(message)
        except Exception as error:  # the reader's own, and torch's where a type is unknown to it
            raise WireError(f"not a rollout: {type(error).__name__}: {error}") from error

    def take(self, name: str, dtype: torch.dtype, shape: Sequence[int | None]) -> Tensor:
        """A tensor of this type and shape, all finite; None: any size."""
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise WireError(f"{name} is missing")
        sizes = zip(tensor.shape, shape, strict=False)
        fits = tensor.ndim == len(shape) and all(want in (None, have) for have, want in sizes)
        if tensor.dtype != dtype or not fits:
            asked = tuple("any" if size is None else size for size in shape)
            raise WireError(
                f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {dtype} of {asked}"
            )
        if dtype.is_floating_point and not tensor.isfinite().all():
            raise WireError(f"{name} holds {tensor[~tensor.isfinite()][0]}")
        return tensor

    def index(
        self,
        name: str,
        shape: Sequence[int | None],
        below: int | None = None,
        dtype: torch.dtype = torch.int64,
    ) -> Tensor:
        """Whole numbers from 0 on, and less than `below`."""
        numbers = self.take(name, dtype, shape)
        wrong = numbers < 0 if below is None else (numbers < 0) | (numbers >= below)
        if wrong.any():
            limit = "" if below is None else f", less than {below}"
            raise WireError(f"{name} holds {int(numbers[wrong][0])}, not a number from 0{limit}")
        return numbers

    def end(self) -> None:
        if self._tensors:
            raise WireError(f"unknown: {', '.join(map(repr, sorted(self._tensors)))}"[:200])


def _frames(frame: Tensor) -> dict[str, Tensor]:
    if not _is_pictures(frame.shape[2:], frame.dtype):
        return {"frame": frame}
    return {f"frame.{name}": part for name, part in unstack(frame)._asdict().items()}


def _frame(parts: _Parts, form: WireForm) -> Tensor:
    if not _is_pictures(form.frame_shape, form.frame_dtype):
        shape = (form.length + 1, form.streams, *form.frame_shape)
        return parts.take("frame", form.frame_dtype, shape)
    pictures, *picture = form.frame_shape
    first = parts.take("frame.first", torch.uint8, (form.streams, *form.frame_shape))
    newest = parts.take("frame.newest", torch.uint8, (form.length, form.streams, *picture))
    breaks = parts.index("frame.breaks", (None,), form.length * form.streams)
    if (breaks[1:] <= breaks[:-1]).any():
        raise WireError("frame.breaks does not rise")
    older = parts.take("frame.older", torch.uint8, (len(breaks), pictures - 1, *picture))
    return restack(Unstacked(first, newest, breaks, older))


def _is_pictures(shape: Sequence[int], dtype: torch.dtype) -> bool:
    return len(shape) == 3 and dtype == torch.uint8


def _leaves(state: State, path: str = "state") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a state with its path, in `map_state`'s order."""
    for name, part in zip(getattr(state, "_fields", range(len(state))), state, strict=True):
        if isinstance(part, Tensor):
            yield f"{path}.{name}", part
        else:
            yield from _leaves(part, f"{path}.{name}")


def _state(parts: _Parts, template: State) -> State:
    taken = (parts.take(name, like.dtype, like.shape) for name, like in _leaves(template))
    return map_state(lambda _: next(taken), template)


def _games(games: Sequence[Episode]) -> dict[str, Tensor]:
    counts = [
        [g.env, g.index, g.agent_steps, g.emulator_frames, len(g.life_returns)] for g in games
    ]
    return {
        "games.counts": torch.tensor(counts, dtype=torch.int64).reshape(-1, 5),
        "games.return": _numbers([game.episode_return for game in games]),
        "games.life_returns": _numbers([one for game in games for one in game.life_returns]),
    }


def _episodes(parts: _Parts, streams: int) -> list[Episode]:
    counts = parts.index("games.counts", (None, 5)).tolist()
    returns = parts.take("games.return", torch.float64, (len(counts),)).tolist()
    life_returns = parts.take("games.life_returns", torch.float64, (None,)).tolist()
    if sum(row[-1] for row in counts) != len(life_returns):
        raise WireError("games.counts does not belong to games.life_returns")
    if any(row[0] >= streams for row in counts):
        raise WireError(f"games.counts names a stream beyond {streams}")
    each = iter(life_returns)
    return [
        Episode(env, index, total, tuple(islice(each, lives)), steps, frames)
        for (env, index, steps, frames, lives), total in zip(counts, returns, strict=True)
    ]


def _lives(lives: Sequence[Life]) -> dict[str, Tensor]:
    counts = [[life.env, life.agent_steps, life.emulator_frames] for life in lives]
    return {
        "lives.counts": torch.tensor(counts, dtype=torch.int64).reshape(-1, 3),
        "lives.return": _numbers([life.life_return for life in lives]),
    }


def _ended_lives(parts: _Parts, streams: int) -> list[Life]:
    counts = parts.index("lives.counts", (None, 3)).tolist()
    returns = parts.take("lives.return", torch.float64, (len(counts),)).tolist()
    if any(env >= streams for env, *_ in counts):
        raise WireError(f"lives.counts names a stream beyond {streams}")
    return [
        Life(env, total, steps, frames)
        for (env, steps, frames), total in zip(counts, returns, strict=True)
    ]


def _numbers(values: Sequence[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
