"""What every environment looks like to an actor: a batch of streams, one `TimeStep` a step.

A stream never ends. Where an episode (for the learner) ends, the next `TimeStep` holds the *next*
episode's first frame with `is_first` set, and the last reward of the old episode: `reward[t+1]`
answers `action[t]`, also across a boundary.
"""

from typing import NamedTuple, Protocol

import numpy as np


class Episode(NamedTuple):
    """One finished full game (or episode, where the environment has no lives)."""

    env: int  # which column of the batch it was played in
    index: int  # 0 for that column's first episode, 1 for the next, ...
    episode_return: float  # undiscounted, unclipped
    life_returns: tuple[float, ...]  # one a life, in order; they sum to episode_return
    agent_steps: int
    emulator_frames: int


class Life(NamedTuple):
    """One finished life: what the published agent's evaluation called an episode."""

    env: int
    life_return: float  # undiscounted, unclipped
    agent_steps: int
    emulator_frames: int


class TimeStep(NamedTuple):
    """One row of all streams, environment axis B first."""

    frame: np.ndarray  # [B, *frame_shape], frame_dtype
    reward: np.ndarray  # [B] float32, unclipped; answers the previous action
    is_first: np.ndarray  # [B] bool: forget before consuming `frame`
    episodes: tuple[Episode, ...]  # finished by the previous action
    lives: tuple[Life, ...]  # finished by the previous action, game over included


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
        """Takes `action` [B] int64 and returns the next row."""
        ...

    def render(self) -> np.ndarray:
        """The current pictures, [B, H, W, 3] uint8; needs `render=True` at construction."""
        ...

    def close(self) -> None: ...
