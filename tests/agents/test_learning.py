"""Learning end to end on the CPU: a game of reflexes, and one that only a memory can win."""

from collections import deque

import pytest
import torch

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network, NetworkConfig

pytestmark = pytest.mark.usefixtures("shapes_unchecked")
SEED = 1
# Two heads of 16: with four of 8, rdn lost a long maze on one of eight seeds.
SMALL = (("layers", 1), ("width", 32), ("heads", 2), ("feedforward", 32))
MAZE = {"game": "TMaze", "corridor": 3}


def make(game: str, num_envs: int, seed: int, **options) -> envs.Environments:
    return envs.make(game, num_envs, seed=seed, options=options)


def share_won(returns) -> float:
    """Above zero is a caught ball, or a turn to the side that the cue named."""
    return sum(one > 0 for one in returns) / len(returns)


def train(core, options, where, *, steps, num_envs, enough=0.97, **hyperparameters) -> Network:
    """Learns for `steps`, or until this share of the last 300 games was won."""
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
    """By argmax, one game in each of 400 new environments: short games count no more than long."""
    actor = Actor(network, make(num_envs=400, seed=77_000, **where), greedy=True)
    episodes = [one for _ in range(2) for one in actor.collect(10).episodes]  # 20 steps at most
    returns = {one.env: one.episode_return for one in episodes if one.index == 0}
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
        # Forget gates that begin half shut pass one thirtieth of the cue down the corridor.
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
    assert all(abs(one) == 1 for one in returns)  # it has learned to walk, and to turn
    assert 0.4 < share_won(returns) < 0.6  # four standard errors
