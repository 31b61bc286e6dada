"""Agents learn a game of reflexes, and a game that needs memory, on the CPU in a minute."""

from collections import deque

import pytest
import torch

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network, NetworkConfig
from fastweights.evaluation.player import Player

pytestmark = pytest.mark.usefixtures("shapes_unchecked")
SEED = 1
# Two heads of 16: with four heads of 8, rdn lost a long maze with one of eight seeds.
SMALL = (("layers", 1), ("width", 32), ("heads", 2), ("feedforward", 32))
MAZE = {"game": "TMaze", "corridor": 3}


def make(game: str, num_envs: int, seed: int, **options) -> envs.Environments:
    return envs.make(game, num_envs, seed=seed, options=options)


def share_won(returns) -> float:
    """Return the share of games won; a positive return is a caught ball or a correct turn."""
    return sum(one > 0 for one in returns) / len(returns)


def train(core, options, where, *, steps, num_envs, enough=0.97, **hyperparameters) -> Network:
    """Train for `steps`, or until the share `enough` of the last 300 games is won."""
    torch.manual_seed(SEED)
    games = make(num_envs=num_envs, seed=1000 * SEED, **where)
    config = NetworkConfig(
        frame_shape=games.frame_shape,
        num_actions=games.num_actions,
        core=core,
        core_options=options,
    )
    network = Network(config)
    actor = Actor(network, games, generator=torch.Generator().manual_seed(SEED))
    learner = Learner(
        network,
        LearnerConfig(
            total_steps=500_000,
            reduction="mean",
            epsilon=1e-5,
            entropy_cost=0.02,
            **hyperparameters,
        ),
    )
    last: deque[float] = deque(maxlen=300)
    while learner.steps < steps and not (len(last) == 300 and share_won(last) >= enough):
        collected = actor.collect(22)
        learner.update(collected.rollout)
        last.extend(episode.episode_return for episode in collected.episodes)
    return network


def first_returns(network: Network, where) -> list[float]:
    """Play one game, with argmax, in each of 400 new environments."""
    seed = 77_000
    environments = make(num_envs=400, seed=seed, **where)
    player = Player(network, environments, action_mode="argmax", seed=seed)
    returns = {}
    for _ in range(20):  # games take 20 steps at most
        player.step()
        for game in player.row.episodes:
            returns.setdefault(game.env, game.episode_return)
    assert len(returns) == 400
    return list(returns.values())


def test_rdn_learns_catch():
    catch = {"game": "Catch"}
    network = train("rdn", SMALL, catch, steps=300_000, num_envs=48, learning_rate=2e-3)
    returns = first_returns(network, catch)
    assert sum(returns) / len(returns) >= 0.9


@pytest.mark.parametrize(
    ("core", "options", "num_envs", "learning_rate"),
    [
        # With half-open forget gates only a thirtieth of the cue would be left at the junction.
        ("lstm", (("width", 64), ("forget_bias", 4.0)), 32, 1e-3),
        ("delta_net", SMALL, 32, 4e-3),
        ("rdn", SMALL, 48, 2e-3),
    ],
)
def test_memory_wins_the_maze(core, options, num_envs, learning_rate):
    network = train(
        core, options, MAZE, steps=400_000, num_envs=num_envs, learning_rate=learning_rate
    )
    assert share_won(first_returns(network, MAZE)) > 0.95


def test_without_memory_the_maze_is_left_to_chance():
    network = train("feedforward", (), MAZE, steps=40_000, num_envs=32, learning_rate=1e-3)
    returns = first_returns(network, MAZE)
    assert all(abs(one) == 1 for one in returns)  # it has learned to walk and to turn
    assert 0.4 < share_won(returns) < 0.6  # 0.5 plus or minus four standard errors
