"""Base class of the small games, which are played as a batch of NumPy arrays."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Int, UInt8

_RED, _GREEN, _BLUE = (214, 69, 65), (63, 160, 95), (66, 114, 196)
COLOURS = np.array([(245, 245, 245), (40, 44, 52), _RED, _GREEN, _BLUE], np.uint8)
PAPER, INK, RED, GREEN, BLUE = range(len(COLOURS))
_CELL = 16  # pixels: video codecs need sides that are multiples of 16
Observations = Float[np.ndarray, "B N"] | UInt8[np.ndarray, "B 1 H W"]


class VectorGame(VectorEnv, ABC):
    """A batch of games with discrete actions and same-step autoreset.

    Each game has its own random generator, so its course depends on its seed and actions, not on
    the number of games. Subclasses define `_begin`, `_advance`, `_observe` and `_cells`.

    Args:
        num_envs: number of games, B.
        observation_space: space of one game.
        action_meanings: one word per action.
        render_mode: `rgb_array` for `render`, or None.

    Raises:
        ValueError: an unknown `render_mode`, or `num_envs` below 1.
    """

    action_meanings: tuple[str, ...]

    def __init__(
        self,
        num_envs: int,
        observation_space: Box,
        action_meanings: tuple[str, ...],
        render_mode: str | None,
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": ["rgb_array"],
            "render_fps": 8,
        }
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.action_meanings = action_meanings
        self.single_observation_space = observation_space
        self.single_action_space = Discrete(len(action_meanings))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = []

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict | None = None
    ) -> tuple[Observations, dict]:
        """Start all games; `seed` s gives game `i` the seed `s + i`, as in Gymnasium.

        Without a seed, the generators continue; the first time, they start from entropy. The same
        holds for games whose seed in a list is None. No `options` are supported.

        Raises:
            ValueError: a list of seeds whose length is not `num_envs`.
        """
        seeds = (
            [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else seed
        )
        if seeds is None:
            seeds = [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} seeds, got {len(seeds)}")
        before = self._generators or [None] * self.num_envs
        self._generators = [
            generator if generator is not None and one is None else np.random.default_rng(one)
            for one, generator in zip(seeds, before, strict=True)
        ]
        self._begin(np.ones(self.num_envs, bool))
        return self._observe(), {}

    def step(
        self, actions: Int[np.ndarray, " B"]
    ) -> tuple[
        Observations,
        Float[np.ndarray, " B"],
        Bool[np.ndarray, " B"],
        Bool[np.ndarray, " B"],
        dict,
    ]:
        """Play one move of every game: observation, reward, terminated, truncated, info.

        Where a game ended, the observation is the first of the next game. `info["final_obs"]` then
        holds the old game's last observation, and `info["_final_obs"]` [B] marks these games.
        """
        reward, terminated, truncated = self._advance(np.asarray(actions))
        over = terminated | truncated
        observation, info = self._observe(), {}
        if over.any():
            info = {"final_obs": observation, "_final_obs": over}
            self._begin(over)
            observation = self._observe()
        return observation, reward, terminated, truncated, info

    def snapshot(self) -> dict[str, Any]:
        """Return all arrays of the games, and their generators; see `Restorable.snapshot`."""
        generators = [generator.bit_generator.state for generator in self._generators]
        return {"arrays": {k: v.copy() for k, v in self._arrays().items()}, "draws": generators}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore the arrays and generators; see `Restorable.restore`."""
        arrays, generators = self._arrays(), [np.random.default_rng() for _ in range(self.num_envs)]
        for name, array in arrays.items():
            if snapshot["arrays"][name].shape != array.shape:
                raise ValueError(f"another number of games: {name} has another shape")
        for generator, state in zip(generators, snapshot["draws"], strict=True):
            generator.bit_generator.state = state
        for name, array in arrays.items():
            array[...] = snapshot["arrays"][name]
        self._generators = generators

    def _arrays(self) -> dict[str, np.ndarray]:
        return {name: held for name, held in vars(self).items() if isinstance(held, np.ndarray)}

    def render(self) -> UInt8[np.ndarray, "B H W 3"] | None:
        """Return pictures of all games; None without a `render_mode`."""
        if self.render_mode is None:
            return None
        pixels = self._cells().repeat(_CELL, axis=1).repeat(_CELL, axis=2)
        return COLOURS[pixels]

    def _draw(self, where: Bool[np.ndarray, " B"], choices: int) -> Int[np.ndarray, " N"]:
        """Draw uniformly from `0 .. choices - 1` for each game in `where`, by its generator."""
        games = np.flatnonzero(where)
        return np.array([self._generators[game].integers(choices) for game in games], np.int64)

    @abstractmethod
    def _begin(self, where: Bool[np.ndarray, " B"]) -> None:
        """Restart the games in `where`."""

    @abstractmethod
    def _advance(
        self, action: Int[np.ndarray, " B"]
    ) -> tuple[Float[np.ndarray, " B"], Bool[np.ndarray, " B"], Bool[np.ndarray, " B"]]:
        """Play one move; return new arrays: float32 reward, terminated, truncated."""

    @abstractmethod
    def _observe(self) -> Observations:
        """Return a new array of observations."""

    @abstractmethod
    def _cells(self) -> Int[np.ndarray, "B R C"]:
        """Return the picture in large cells, each an index into `COLOURS`."""


def vector_space(size: int) -> Box:
    """Return the space of float32 vectors [size] between 0 and 1."""
    return Box(0.0, 1.0, (size,), np.float32)
