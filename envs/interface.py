"""What every environment looks like to an actor: a batch of streams, one `TimeStep` a step.

A stream never ends. Where an episode (for the learner) ends, the next `TimeStep` holds the *next*
episode's first frame with `is_first` set, and the last reward of the old episode: `reward[t+1]`
answers `action[t]`, also across a boundary.

Units. An *agent step* is one decision; an *emulator frame* is one picture of the game. Where
there is no emulator, one agent step is one frame.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fastweights.host.errors import UserError


class BrokenEnvironment(UserError):
    """An environment that breaks Gymnasium's interface, or whose values are not finite.

    The message is one line that names the environment and what to change.
    """


class Episode(NamedTuple):
    """One finished full game (or episode, where the environment has no lives)."""

    env: int  # which column of the batch it was played in
    index: int  # 0 for that column's first episode, 1 for the next, ...
    episode_return: float  # undiscounted, unclipped
    life_returns: tuple[float, ...]  # one a life, in order; they sum to episode_return
    agent_steps: int
    emulator_frames: int  # every frame since the game's reset, those before the first decision too


class Life(NamedTuple):
    """One finished life: what the published agent's evaluation called an episode."""

    env: int
    life_return: float  # undiscounted, unclipped
    agent_steps: int
    emulator_frames: int  # the lives of a game sum to the game's


class TimeStep(NamedTuple):
    """One row of all streams, environment axis B first.

    The arrays are the caller's to keep: no environment writes to them again.
    """

    frame: np.ndarray  # [B, *frame_shape], frame_dtype
    reward: np.ndarray  # [B] float32, unclipped; answers the previous action
    is_first: np.ndarray  # [B] bool: forget before consuming `frame`
    episodes: tuple[Episode, ...]  # finished by the previous action
    lives: tuple[Life, ...]  # finished by the previous action, game over included


@runtime_checkable
class Environments(Protocol):
    """A batch of environments with automatic reset."""

    name: str
    num_envs: int
    num_actions: int
    action_meanings: tuple[str, ...]
    frame_shape: tuple[int, ...]  # (C, H, W) for images, (N,) for vectors
    frame_dtype: np.dtype  # uint8 for images, float32 for vectors
    frames_per_step: int  # emulator frames an agent step

    def reset(self) -> TimeStep:
        """Starts every stream afresh from its seed; all `is_first`, rewards zero."""
        ...

    def step(self, action: np.ndarray) -> TimeStep:
        """Takes `action` [B] int64 and returns the next row.

        Raises:
            ValueError: `action` has another shape or kind, or leaves `0 .. num_actions - 1`.
            BrokenEnvironment: the game's observation or reward is not finite.
        """
        ...

    def render(self) -> np.ndarray:
        """The current pictures, [B, H, W, 3] uint8; needs `render=True` at construction."""
        ...

    def close(self) -> None:
        """Frees threads and windows. The last `TimeStep` stays valid."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """Environments that can be put back where they were, so that a resumed run is the whole run.

    A Gymnasium `VectorEnv` with these two methods is one too. ale-py's has no such methods.
    """

    def snapshot(self) -> dict[str, Any] | None:
        """Where every stream stands: arrays, numbers, words, and lists or dicts of them.

        The values are the caller's to keep. None where the wrapped game cannot be put back.
        """
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Goes back to what `snapshot` returned, the next random draws included.

        Raises:
            KeyError, TypeError, ValueError: `snapshot` is of other environments.
        """
        ...


def check_action(action: np.ndarray, num_envs: int, num_actions: int) -> None:
    """Raises `ValueError` unless `action` is [num_envs] integers in `0 .. num_actions - 1`.

    Not a nicety: ale-py's vector environment waits for ever after an action out of range.
    """
    if action.shape != (num_envs,) or action.dtype.kind not in "iu":
        raise ValueError(
            f"actions must be integers of shape ({num_envs},), "
            f"got {action.dtype} of shape {action.shape}"
        )
    if action.min() < 0 or action.max() >= num_actions:
        raise ValueError(f"actions must be in 0..{num_actions - 1}, got {action.tolist()}")


def check_finite(what: str, values: np.ndarray, *, name: str, seed: int, steps: np.ndarray) -> None:
    """Raises `BrokenEnvironment` where one of `values` [B, ...], floats, is NaN or infinite.

    Args:
        what: `observation` or `reward`.
        values: as the agent would get them.
        name: what the environment is called.
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
        f"can hold: correct the environment, or put gymnasium.wrappers.Transform"
        f"{what.capitalize()} around it"
    )


def check_batch(num_envs: int, seed: int) -> None:
    """Raises `ValueError` unless there is an environment, and a seed for each of them.

    Environment `i` takes `seed + i`, which ale-py keeps in an int32 (and ignores below zero).
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    if not 0 <= seed <= 2**31 - num_envs:
        raise ValueError(f"seed must be in 0..{2**31 - num_envs}, got {seed}")
