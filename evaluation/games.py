"""Test episodes of a trained network.

Every environment plays one game, its first, and all of these games count. The first N games to
finish would be biased towards short games, which are mostly bad ones. Game i depends only on
`seed + i` (`evaluation/player.py`), so it is the same for any number of parallel games.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from fastweights.agents import Network
from fastweights.envs import Environments, Episode, Life, resolve
from fastweights.evaluation.player import ActionMode, Player

# Atari's score counters have at most six decimal digits. If the score drops by half of the
# counter's range in one step, the counter has overflowed. This happens in Battlezone and Up'n Down;
# in games with shorter counters, ale-py adds up the score itself.
_ATARI_SCORE_MODULUS = 1_000_000


class Played(NamedTuple):
    """One finished game, with the overflows of its score counter."""

    game: Episode
    life_wraps: tuple[int, ...]  # overflows of the score counter in each life


def play_games(
    network: Network,
    environments: Environments,
    *,
    action_mode: ActionMode,
    seed: int,
    device: torch.device | str = "cpu",
    score_modulus: int | None = None,
    max_steps: int | None = None,
    progress: Callable[[int, int], None] = lambda finished, longest: None,
) -> list[Played]:
    """Play each environment's first game to its end; return one result per environment, in order.

    Args:
        network: the agent's network.
        environments: the environments; environment i has seed `seed + i`.
        action_mode: sampled or argmax.
        seed: seed of the first environment, and of its sampled actions.
        device: device of the network.
        score_modulus: score at which the counter overflows; None for never.
        max_steps: agent steps after which a game of one life is cut; its return so far counts.
        progress: called after every step with the number of finished games and the agent steps of
            the others. An exception that it raises ends the games.
    """
    player = Player(network, environments, action_mode=action_mode, seed=seed, device=device)
    finished: dict[int, Played] = {}
    wraps = _Wraps(environments.num_envs, score_modulus)
    returns, steps = np.zeros(environments.num_envs), 0
    while len(finished) < environments.num_envs and steps != max_steps:
        player.step()
        steps += 1
        returns += player.row.reward
        wraps.note(player.row.reward, player.row.lives)
        over = [game for game in player.row.episodes if game.index == 0]
        if over:
            finished |= {game.env: Played(game, wraps.of_game(game)) for game in over}
            player.keep(np.setdiff1d(player.playing, list(finished)))
        progress(len(finished), steps)
    frames = steps * environments.frames_per_step
    cut = (Episode(env, 0, one, (one,), steps, frames) for env, one in enumerate(returns.tolist()))
    return [finished.get(game.env, Played(game, (0,))) for game in cut]


def film(
    network: Network,
    environments: Environments,
    *,
    action_mode: ActionMode,
    seed: int,
    max_steps: int,
    device: torch.device | str = "cpu",
) -> Iterator[np.ndarray]:
    """Yield pictures [H, W, 3] of the first environment's first episode, one per agent step.

    Ends with the episode, or after `max_steps` agent steps.
    """
    player = Player(network, environments, action_mode=action_mode, seed=seed, device=device)
    yield environments.render()[0]
    for _ in range(max_steps):
        player.step()
        if any(episode.env == 0 for episode in player.row.episodes):
            return
        yield environments.render()[0]


def check_actions(network: Network, environments: Environments) -> None:
    """Raise a one-line `ValueError` if the network cannot play the environment."""
    config = network.config
    if config.num_actions != environments.num_actions:
        raise ValueError(
            f"the checkpoint's policy has {config.num_actions} actions, but {environments.name} "
            f"has {environments.num_actions}: evaluate on the game that it was trained on"
        )
    if tuple(config.frame_shape) != tuple(environments.frame_shape):
        raise ValueError(
            f"the checkpoint's stem takes frames of shape {tuple(config.frame_shape)}, but "
            f"{environments.name} has {tuple(environments.frame_shape)}: evaluate on the "
            "environment that it was trained on"
        )


def score_modulus(env: str) -> int | None:
    """Return the score at which an environment's counter overflows; None for never."""
    return None if resolve(env).rom is None else _ATARI_SCORE_MODULUS


class _Wraps:
    """Counters of the overflows of each game's score."""

    def __init__(self, num_envs: int, modulus: int | None):
        self._jump = -np.inf if modulus is None else -modulus / 2
        self._now = np.zeros(num_envs, int)
        self._lives: list[list[int]] = [[] for _ in range(num_envs)]

    def note(self, reward: np.ndarray, lives: Iterable[Life]) -> None:
        self._now += reward < self._jump
        for life in lives:
            self._lives[life.env].append(int(self._now[life.env]))
            self._now[life.env] = 0

    def of_game(self, game: Episode) -> tuple[int, ...]:
        """Return the counts of an environment's first game, which has just ended."""
        return tuple(self._lives[game.env][: len(game.life_returns)])
