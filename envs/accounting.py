"""Returns and lengths of lives and full games, for a whole batch at once.

A step costs two additions and one `any`. Python loops only over environments in which a life or
game ended.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fastweights.envs.interface import Episode, Life


class Accounting:
    """Counters of unclipped reward, agent steps and emulator frames for each environment.

    The counters hold the life in progress. A finished game is the sum of its lives.
    """

    def __init__(self, num_envs: int):
        self._num_envs = num_envs
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero and forget all games, before every environment's first game."""
        self._life_return = np.zeros(self._num_envs, np.float64)
        self._life_steps = np.zeros(self._num_envs, np.int64)
        self._life_began = np.zeros(self._num_envs, np.int64)
        self._past_lives: list[list[Life]] = [[] for _ in range(self._num_envs)]
        self._games_ended = [0] * self._num_envs

    def snapshot(self) -> dict[str, Any]:
        """Return the counters for `restore`: arrays and lists of numbers."""
        return {
            "life_return": self._life_return.copy(),
            "life_steps": self._life_steps.copy(),
            "life_began": self._life_began.copy(),
            "past_lives": [[tuple(life) for life in lives] for lives in self._past_lives],
            "games_ended": self._games_ended.copy(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore the counters that `snapshot` returned."""
        self._life_return[:] = snapshot["life_return"]
        self._life_steps[:] = snapshot["life_steps"]
        self._life_began[:] = snapshot["life_began"]
        self._past_lives = [[Life(*life) for life in lives] for lives in snapshot["past_lives"]]
        self._games_ended = list(snapshot["games_ended"])

    def record(
        self,
        reward: Float[np.ndarray, " B"],
        life_over: Bool[np.ndarray, " B"],
        game_over: Bool[np.ndarray, " B"],
        clock: Int[np.ndarray, " B"],
    ) -> tuple[tuple[Episode, ...], tuple[Life, ...]]:
        """Add one step of all environments, and return the games and lives that it ended.

        Both tuples are in the order of the environments.

        Args:
            reward: unclipped reward of the step.
            life_over: whether a life ended in this step. The end of a game also ends a life.
            game_over: whether the game ended in this step, by its rules or by a time limit.
            clock: emulator frames since `reset`, never decreasing; where a life ended, up to its
                end. Other entries are not used.
        """
        self._life_return += reward
        self._life_steps += 1
        ended = life_over | game_over
        if not ended.any():
            return (), ()
        columns = np.flatnonzero(ended).tolist()
        lives = tuple(self._end_life(env, int(clock[env])) for env in columns)
        return tuple(self._end_game(env) for env in columns if game_over[env]), lives

    def _end_life(self, env: int, clock: int) -> Life:
        life = Life(
            env=env,
            life_return=float(self._life_return[env]),
            agent_steps=int(self._life_steps[env]),
            emulator_frames=clock - int(self._life_began[env]),
        )
        self._life_return[env] = 0.0
        self._life_steps[env] = 0
        self._life_began[env] = clock
        self._past_lives[env].append(life)
        return life

    def _end_game(self, env: int) -> Episode:
        lives, self._past_lives[env] = self._past_lives[env], []
        index = self._games_ended[env]
        self._games_ended[env] += 1
        return Episode(
            env=env,
            index=index,
            episode_return=sum(life.life_return for life in lives),
            life_returns=tuple(life.life_return for life in lives),
            agent_steps=sum(life.agent_steps for life in lives),
            emulator_frames=sum(life.emulator_frames for life in lives),
        )
