"""Test episodes are counted without a bias toward short ones, and load again as stored."""

from collections import Counter

import numpy as np
import pytest
import torch

import envs
from agents.network import Network, NetworkConfig
from envs.interface import TimeStep
from launch import atari, evaluate
from launch.evaluation import Evaluation, check_actions, film
from launch.evaluation import evaluate as play_episodes


def network_for(environments, core="rdn", **options) -> Network:
    config = NetworkConfig(
        frame_shape=environments.frame_shape,
        num_actions=environments.num_actions,
        core=core,
        core_options=tuple(options.items()),
    )
    return Network(config)


def maze(num_envs: int, seed: int = 5):
    return envs.make("TMaze", num_envs, seed=seed, options={"corridor": 3})


def play(network, environments, episodes, action_mode="argmax"):
    return play_episodes(network, environments, episodes=episodes, action_mode=action_mode, seed=1)


def test_each_environment_contributes_its_first_episodes():
    episodes = play(network_for(maze(1)), maze(3), 8, "sampled")
    assert Counter(episode.env for episode in episodes) == {0: 3, 1: 3, 2: 2}
    assert [e.index for e in episodes if e.env == 2] == [0, 1]


@pytest.mark.parametrize("core", ["rdn", "lstm"])
def test_episodes_do_not_depend_on_how_many_are_played_at_once(core):
    """Argmax, so that only the environments' seeds and each stream's own memory decide."""
    network = network_for(maze(1), core, width=8)
    together = play(network, maze(4, seed=10), 8)
    alone = [e for i in range(4) for e in play(network, maze(1, seed=10 + i), 2)]
    assert [e._replace(env=0) for e in together] == alone


class ShortAndLong:
    """Environment 0 loses after 2 steps, environment 1 wins after 20."""

    name, num_envs, num_actions, frame_shape = "ShortAndLong", 2, 2, (1,)

    def reset(self) -> TimeStep:
        self.age, self.index = np.zeros(2, int), np.zeros(2, int)
        return self._row(np.ones(2, bool), ())

    def step(self, action: np.ndarray) -> TimeStep:
        self.age += 1
        over = self.age >= (2, 20)
        ended = tuple(
            envs.Episode(int(i), int(self.index[i]), float(i), (float(i),), int(self.age[i]), 0)
            for i in np.flatnonzero(over)
        )
        self.index += over
        self.age[over] = 0
        return self._row(over, ended)

    def _row(self, is_first: np.ndarray, episodes: tuple) -> TimeStep:
        zeros = np.zeros((2, 1), np.float32)
        return TimeStep(zeros, zeros[:, 0], is_first, episodes, ())


def test_long_games_count_as_much_as_short_ones():
    episodes = play(network_for(ShortAndLong()), ShortAndLong(), 10)
    assert sum(e.episode_return for e in episodes) / len(episodes) == 0.5


def test_episodes_survive_a_file(tmp_path):
    episodes = play(network_for(maze(1)), maze(2), 4, "sampled")
    evaluation = Evaluation(
        env="TMaze",
        protocol="full-game",
        action_mode="sampled",
        seed=1,
        num_envs=2,
        agent_steps=7,
        episodes=episodes,
    )
    evaluation.save(tmp_path / "e.json", run="somewhere")
    assert Evaluation.load(tmp_path / "e.json") == evaluation
    returns = [episode.episode_return for episode in episodes]
    assert evaluation.summary()["full_game_mean"] == pytest.approx(np.mean(returns))
    assert evaluation.summary()["full_game_std"] == pytest.approx(np.std(returns))


def test_a_film_is_one_episode_long():
    torch.manual_seed(0)
    network = network_for(maze(1))
    (episode,) = play(network, maze(1), 1)
    visible = envs.make("TMaze", 1, seed=5, options={"corridor": 3}, render=True)
    pictures = list(film(network, visible, action_mode="argmax", seed=1, max_steps=100))
    assert len(pictures) == episode.agent_steps
    visible.reset()
    assert len(list(film(network, visible, action_mode="argmax", seed=1, max_steps=2))) == 3


def test_a_network_does_not_play_another_shape_of_frame():
    catch = envs.make("Catch", 1)
    network = network_for(maze(1))
    with pytest.raises(ValueError, match=r"frames of shape \(4,\).*\(50,\)"):
        check_actions(network, catch)


def test_any_gymnasium_environment_trains_and_is_evaluated(tmp_path, capsys):
    fast = ["--num-threads", "1", "--num-envs", "4", "--batch-size", "4", "--core-width", "16"]
    where = ["--savedir", str(tmp_path), "--xpid", "pole"]
    assert atari.main(["--env", "CartPole-v1", *fast, *where, "--total-steps", "400"]) == 0
    assert evaluate.main([str(tmp_path / "pole"), "--episodes", "3", "--num-threads", "1"]) == 0
    assert "full-game return" in capsys.readouterr().out
