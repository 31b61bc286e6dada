"""The interface of all environments: a batch of streams, one `TimeStep` per step.

A stream never ends. When an episode (for the learner) ends, the next `TimeStep` holds the *next*
episode's first frame with `is_first` set, and the last reward of the old episode: `reward[t+1]`
answers `action[t]`, even across a boundary.

Units. An *agent step* is one decision; an *emulator frame* is one picture of the game. Without
an emulator, one agent step is one frame.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fastweights.host import UserError


class BrokenEnvironment(UserError):
    """An environment violates Gymnasium's interface or returns non-finite values.

    The message is one line that names the environment and what to change.
    """


class Episode(NamedTuple):
    """One finished full game (or episode, if the environment has no lives)."""

    env: int  # column of the batch
    index: int  # 0 for the column's first episode, 1 for the next, ...
    episode_return: float  # undiscounted, unclipped
    life_returns: tuple[float, ...]  # one per life, in order; they sum to episode_return
    agent_steps: int
    emulator_frames: int  # all frames since the game's reset, incl. before the first decision


class Life(NamedTuple):
    """One finished life; the published agent's evaluation calls it an episode."""

    env: int
    life_return: float  # undiscounted, unclipped
    agent_steps: int
    emulator_frames: int  # the lives of a game sum to the game's


class CutOff(NamedTuple):
    """Streams whose episode was cut off by a time limit, and the next frame of each."""

    streams: np.ndarray  # [N] int64, ascending
    frame: np.ndarray  # [N, *frame_shape], frame_dtype


class TimeStep(NamedTuple):
    """One row of all streams, environment axis B first.

    The arrays belong to the caller: environments never write to them again.
    """

    frame: np.ndarray  # [B, *frame_shape], frame_dtype
    reward: np.ndarray  # [B] float32, unclipped; answers the previous action
    is_first: np.ndarray  # [B] bool: reset the memory before consuming `frame`
    episodes: tuple[Episode, ...]  # finished by the previous action
    lives: tuple[Life, ...]  # finished by the previous action, game over included
    # Episodes that ended by a time limit, not by the game's rules. None: there are none, or the
    # environments were created without `tell_cut_off=True`.
    cut_off: CutOff | None = None


@runtime_checkable
class Environments(Protocol):
    """A batch of environments with automatic reset."""

    name: str
    num_envs: int
    num_actions: int
    action_meanings: tuple[str, ...]
    frame_shape: tuple[int, ...]  # (C, H, W) for images, (N,) for vectors
    frame_dtype: np.dtype  # uint8 for images, float32 for vectors
    frames_per_step: int  # emulator frames per agent step
    steps_per_second: float  # agent steps per second at the game's normal speed

    def reset(self) -> TimeStep:
        """Restart every stream from its seed; all `is_first` are set, all rewards are zero."""
        ...

    def step(self, action: np.ndarray) -> TimeStep:
        """Take `action` [B] int64 and return the next row.

        Raises:
            ValueError: `action` has another shape or dtype, or is not in `0 .. num_actions - 1`.
            BrokenEnvironment: an observation or reward is not finite.
        """
        ...

    def render(self) -> np.ndarray:
        """Return the current pictures, [B, H, W, 3] uint8; needs `render=True` at construction."""
        ...

    def close(self) -> None:
        """Free threads and windows. The last `TimeStep` stays valid."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """Environments whose state can be restored, so that a resumed run equals an uninterrupted one.

    A Gymnasium `VectorEnv` with these two methods is restorable, too. ale-py's has no such methods.
    """

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of every stream: arrays, numbers, strings, lists and dicts of these.

        The values belong to the caller. None if the wrapped game cannot be restored.
        """
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore the state that `snapshot` returned, including the next random draws.

        Raises:
            KeyError, TypeError, ValueError: `snapshot` belongs to other environments.
        """
        ...


def check_action(action: np.ndarray, num_envs: int, num_actions: int) -> None:
    """Raise `ValueError` unless `action` is [num_envs] integers in `0 .. num_actions - 1`.

    ale-py's vector environment would hang forever after an action out of range.
    """
    if not isinstance(action, np.ndarray):
        raise ValueError(f"actions must be an array of NumPy, not {type(action).__name__}")
    if action.shape != (num_envs,) or action.dtype.kind not in "iu":
        raise ValueError(
            f"actions must be integers of shape ({num_envs},), "
            f"got {action.dtype} of shape {action.shape}"
        )
    if action.min() < 0 or action.max() >= num_actions:
        raise ValueError(f"actions must be in 0..{num_actions - 1}, got {action.tolist()}")


def check_finite(what: str, values: np.ndarray, *, name: str, seed: int, steps: np.ndarray) -> None:
    """Raise `BrokenEnvironment` if one of the floats `values` [B, ...] is NaN or infinite.

    Args:
        what: `observation` or `reward`, for the message.
        values: the values that the agent would get.
        name: the environment's name.
        seed: environment `i` was made with seed `seed + i`.
        steps: [B] agent steps of each environment since `reset`.
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    env, *index = np.argwhere(~finite)[0].tolist()
    at = f" at index {index[0]}" if index else ""
    when = f"of step {steps[env]}" if steps[env] else "of the reset"
    raise BrokenEnvironment(
        f"{name}, environment {env} (seed {seed + env}): the {what} {when} is "
        f"{values[env, *index]}{at}; observations and rewards must be finite numbers that float32 "
        f"can represent: fix the environment, or wrap it in gymnasium.wrappers.Transform"
        f"{what.capitalize()}"
    )


def check_batch(num_envs: int, seed: int) -> None:
    """Raise `ValueError` for fewer than one environment, or a seed out of range.

    Environment `i` uses `seed + i`. ale-py stores it in an int32 and ignores negative seeds.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    if not 0 <= seed <= 2**31 - num_envs:
        raise ValueError(f"seed must be in 0..{2**31 - num_envs}, got {seed}")
