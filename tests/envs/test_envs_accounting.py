"""The accounting of episodes, against lists that remember every step."""

import numpy as np

from fastweights.envs.accounting import Accounting
from fastweights.envs.interface import Episode, Life


def test_a_worked_example():
    """Of two environments, the first loses a life and then its game; the second plays on."""
    accounting = Accounting(2)
    no = np.array([False, False])
    yes = np.array([True, False])

    def record(reward, life_over, game_over, clock):
        return accounting.record(
            np.array(reward, np.float32), life_over, game_over, np.array(clock)
        )

    assert record([1, 5], no, no, [14, 4]) == ((), ())
    assert record([2, 0], yes, no, [18, 8]) == ((), (Life(0, 3.0, 2, 18),))
    games, lives = record([-4, 0], no, yes, [20, 12])
    assert lives == (Life(0, -4.0, 1, 2),)
    assert games == (Episode(0, 0, -1.0, (3.0, -4.0), 3, 20),)
    # The next game began at 20, when the previous game ended.
    games, lives = record([7, 0], yes, yes, [33, 16])
    assert games == (Episode(0, 1, 7.0, (7.0,), 1, 13),)
    games, lives = record([0, 1], ~yes, ~yes, [37, 20])
    assert games == (Episode(1, 0, 6.0, (6.0,), 5, 20),)
    accounting.reset()
    games, _ = record([1, 1], ~no, ~no, [4, 4])
    assert games == (Episode(0, 0, 1.0, (1.0,), 1, 4), Episode(1, 0, 1.0, (1.0,), 1, 4))


def test_random_streams():
    rng, num_envs = np.random.default_rng(0), 5
    accounting, clock = Accounting(num_envs), np.zeros(num_envs, np.int64)
    games, lives, history = [], [], []
    for _ in range(300):
        reward = rng.integers(-3, 4, num_envs).astype(np.float32)
        life_over, game_over = rng.random((2, num_envs)) < [[0.1], [0.03]]
        clock = clock + rng.integers(1, 5, num_envs)
        history.append((reward, life_over | game_over, game_over, clock))
        new_games, new_lives = accounting.record(reward, life_over, game_over, clock)
        games += new_games
        lives += new_lives
    for env in range(num_envs):
        expected = []
        life, began = [], 0
        for reward, life_over, _, now in history:
            life.append(float(reward[env]))
            if life_over[env]:
                expected.append(Life(env, sum(life), len(life), int(now[env]) - began))
                life, began = [], int(now[env])
        assert [life for life in lives if life.env == env] == expected
        mine = [game for game in games if game.env == env]
        assert [game.index for game in mine] == list(range(len(mine)))
        assert [one for game in mine for one in game.life_returns] == [
            life.life_return for life in expected
        ][: sum(len(game.life_returns) for game in mine)]
        ends = [0] + [int(now[env]) for _, _, game_over, now in history if game_over[env]]
        assert [game.emulator_frames for game in mine] == np.diff(ends).tolist()
