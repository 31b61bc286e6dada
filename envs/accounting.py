"""Returns and lengths of lives and of full games, kept for a whole batch at once.

A step costs two additions and one `any`. Only where a life or a game ended does Python touch a
single environment.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fastweights.envs.interface import Episode, Life


class Accounting:
    """Sums up unclipped rewards, agent steps and emulator frames for each environment.

    A game is its lives: what is counted is the life in progress, and a finished game adds up
    those it was made of.
    """

    def __init__(self, num_envs: int):
        self._num_envs = num_envs
        self.reset()

    def reset(self) -> None:
        """Forgets everything: all environments are about to play their first game."""
        self._life_return = np.zeros(self._num_envs, np.float64)
        self._life_steps = np.zeros(self._num_envs, np.int64)
        self._life_began = np.zeros(self._num_envs, np.int64)
        self._past_lives: list[list[Life]] = [[] for _ in range(self._num_envs)]
        self._games_ended = [0] * self._num_envs

    def snapshot(self) -> dict[str, Any]:
        """What `restore` takes to go on counting here: arrays and lists of numbers."""
        return {
            "life_return": self._life_return.copy(),
            "life_steps": self._life_steps.copy(),
            "life_began": self._life_began.copy(),
            "past_lives": [[tuple(life) for life in lives] for lives in self._past_lives],
            "games_ended": self._games_ended.copy(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Takes up what `snapshot` returned."""
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
        """Enters one step of all environments; returns what it finished, in environment order.

        Args:
            reward: unclipped reward of the step.
            life_over: a life ended in this step. The end of a game is always the end of a life.
            game_over: the game ended in this step, by itself or by a cap.
            clock: emulator frames since `reset`, never falling; where a life ended, up to its
                end and not a frame further. Read only where something ended.
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
