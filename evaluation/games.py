"""Test episodes of a trained network.

Every environment plays one game, its first, and all of these games count. The first N games to
finish would be biased towards short games, which are mostly bad ones. Game i depends on `seed + i`
only (`evaluation/player.py`), so it is the same for any number of simultaneous games.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from fastweights.agents import Network
from fastweights.envs import (
    HALF_AN_HOUR,
    PROTOCOLS,
    Environments,
    Episode,
    Life,
    protocol_named,
    resolve,
)
from fastweights.evaluation.player import ActionMode, Player
from fastweights.host import unknown_name
from fastweights.training import Rules, RunOptions, trained_rules

# Atari's score counters have six decimal digits or fewer. If a step loses half of the counter's
# range, the counter has overflowed. This happens in Battlezone and Up'n Down; in games with
# shorter counters ale-py adds up the score itself.
_ATARI_SCORE_MODULUS = 1_000_000


class Played(NamedTuple):
    """One finished game, and the overflows of its score counter."""

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
    """Play each environment's first game to its end; return one result an environment, in order.

    Args:
        network: the agent's network.
        environments: the environments; environment i has seed `seed + i`.
        action_mode: sampled or argmax.
        seed: seed of the first environment, and of its sampled actions.
        device: device of the network.
        score_modulus: score at which the counter overflows; None for never.
        max_steps: agent steps after which a game of one life is cut; its return so far counts.
        progress: called after every step with the number of finished games and the agent steps of
            the others. An exception from it ends the playing.
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
    """Yield pictures [H, W, 3] of the first environment's first episode, one an agent step.

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
            f"the checkpoint's policy has {config.num_actions} actions and {environments.name} "
            f"offers {environments.num_actions}: evaluate on the game it was trained for"
        )
    if tuple(config.frame_shape) != tuple(environments.frame_shape):
        raise ValueError(
            f"the checkpoint's stem takes frames of shape {tuple(config.frame_shape)} and "
            f"{environments.name} shows {tuple(environments.frame_shape)}: evaluate on the "
            "environment it was trained for"
        )


def score_modulus(env: str) -> int | None:
    """Return the score at which an environment's counter overflows; None for never."""
    return None if resolve(env).rom is None else _ATARI_SCORE_MODULUS


def rules_for_testing(options: RunOptions, protocol: str, max_frames: int | None = None) -> Rules:
    """Return the rules of test games for an agent trained with `options`.

    `protocol` may be `trained`. On Atari a game is cut as `longest_test` says. Observations and
    actions stay as in training: an agent with fewer actions than the protocol never uses the
    others.

    Raises:
        ValueError: an unknown protocol, or one for other environments.
    """
    if protocol not in (known := (*PROTOCOLS, "trained")):
        raise ValueError(unknown_name("protocol", protocol, known))
    trained = trained_rules(options)
    learned = trained.resolved(options.env)
    if learned is None:
        return trained if protocol == "trained" else trained._replace(protocol=protocol)
    cap = {"max_frames": longest_test(options, protocol, max_frames)}
    if protocol == "trained":
        return trained._replace(options=trained.options | cap)
    own = {name: getattr(learned, name) for name in (*THE_AGENTS_OWN, *THE_TASKS_OWN)}
    return Rules(protocol, own | cap)


def longest_test(options: RunOptions, protocol: str, max_frames: int | None = None) -> int | None:
    """Return the time limit of a test game in frames; None for no limit.

    `max_frames`: the limit that was asked for, 0 for none. None selects the protocol's limit
    (`trained`: training's), or half an hour if there is none.

    Raises:
        ValueError: an unknown protocol.
    """
    if max_frames is not None:
        return max_frames or None
    if (learned := trained_rules(options).resolved(options.env)) is None:
        return HALF_AN_HOUR
    own = learned if protocol == "trained" else protocol_named(protocol)
    return own.max_frames or HALF_AN_HOUR


# Observations and actions: the same under every protocol.
THE_AGENTS_OWN = ("frame_skip", "max_pool", "frame_stack", "full_action_set")

# Options that change the task: also as in training, and named beside the protocol.
THE_TASKS_OWN = ("flicker",)


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
