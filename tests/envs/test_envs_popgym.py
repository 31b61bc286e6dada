"""POPGym's 42 games: which are supported, and that their rewards reach the learner unchanged.

Source of the games: Morad et al. 2023, POPGym: Benchmarking Partially Observable Reinforcement
Learning.
"""

import gymnasium
import numpy as np
import popgym
import pytest
from popgym.core.env import POPGymEnv

from fastweights import envs
from fastweights.agents.learner_config import LearnerConfig
from fastweights.training.options import RunOptions

CONTINUOUS = {
    f"popgym-{noisy}PositionOnlyPendulum{level}-v0"
    for noisy in ("", "Noisy")
    for level in ("Easy", "Medium", "Hard")
}
GAMES = sorted(name for name in gymnasium.registry if name.startswith("popgym-"))
PLAYED = [name for name in GAMES if name not in CONTINUOUS]
STEPS = 180  # Autoencode's hard game pays nothing before step 156


def play(name, steps=STEPS, num_envs=2, seed=5):
    environments = envs.make(f"popgym:{name}", num_envs, seed=seed)
    rows, rng = [environments.reset()], np.random.default_rng(0)
    for _ in range(steps):
        rows.append(environments.step(rng.integers(0, environments.num_actions, num_envs)))
    return environments, rows


def test_thirty_six_of_forty_two():
    assert (len(GAMES), len(PLAYED), len(CONTINUOUS)) == (42, 36, 6)
    assert all(issubclass(cls, POPGymEnv) for cls in popgym.envs.ALL)


@pytest.mark.parametrize("name", PLAYED)
def test_a_game_is_played_reproducibly_and_pays_within_the_clipping(name):
    """The default clipping of rewards to [-1, 1] does not change these games' rewards."""
    environments, rows = play(name)
    for row, again in zip(rows, play(name)[1], strict=True):
        for one, other in zip(row[:3], again[:3], strict=True):
            np.testing.assert_array_equal(one, other)
    frames, rewards = (np.stack(parts) for parts in zip(*(row[:2] for row in rows), strict=True))
    assert frames.dtype == np.float32 and frames.shape[2:] == environments.frame_shape
    assert (frames[:-1] != frames[1:]).any()
    assert 0 < np.abs(rewards).max() <= 1
    assert all(abs(game.episode_return) <= 1 + 1e-9 for row in rows for game in row.episodes)
    assert 2 <= environments.num_actions <= 144


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_continuous_actions_are_refused_with_what_would_help(name):
    with pytest.raises(ValueError, match=r"Box.*whose actions are continuous: .*DiscretizeAction$"):
        envs.make(f"popgym:{name}", 1)


def test_a_time_limit_ends_an_episode_as_everywhere():
    """POPGym cuts CartPole at 200 steps; a shorter limit cuts it here while the pole stands."""
    options = {"max_episode_steps": 7}
    environments = envs.make("popgym:popgym-PositionOnlyCartPoleEasy-v0", 1, options=options)
    environments.reset()
    rows = [environments.step(np.array([step % 2])) for step in range(14)]
    assert [bool(row.is_first[0]) for row in rows] == ([False] * 6 + [True]) * 2
    assert [game.agent_steps for row in rows for game in row.episodes] == [7, 7]


def test_joint_actions_reach_every_field():
    """Battleship has 8 x 8 fields; shooting at each once sinks all ships."""
    environments = envs.make("popgym:popgym-BattleshipEasy-v0", 1)
    assert (environments.num_actions, environments.action_meanings[9]) == (64, "1,1")
    row = environments.reset()
    rewards = []
    for field in range(64):
        row = environments.step(np.array([field]))
        rewards.append(float(row.reward[0]))
        if row.is_first[0]:
            break
    assert row.is_first[0] and sum(reward > 0 for reward in rewards) == 12
    (game,) = row.episodes
    assert -1 <= game.episode_return <= 1


def test_the_default_recipe_sees_the_last_action_and_discounts_as_the_baselines_do():
    """popgym/baselines/ppo.py: each observation contains the last action, and gamma is 0.99."""
    options = RunOptions(env="popgym:popgym-CountRecallEasy-v0")
    assert options.network((4,), 27).feed_last_action is True
    assert LearnerConfig().discounting == 0.99
