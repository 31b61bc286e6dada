"""The loop of a run, with rollouts that were played before: what it logs, and when it saves."""

import io

import pytest

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network
from fastweights.host.progress import ProgressDisplay
from fastweights.host.stages import Stages
from fastweights.records.metrics import Metrics
from fastweights.training import loop
from fastweights.training.exchange import LAG
from fastweights.training.loop import Training, train
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.experience import Experience

LENGTH, STREAMS, UPDATES = 3, 2, 12


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Repeated:
    """A source that hands on one rollout again and again, each after 25 seconds."""

    threads, waiting = (), 0

    def __init__(self, experience: Experience, clock: Clock):
        self.experience, self.clock = experience, clock

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def rollouts(self):
        while True:
            self.clock.now += 25
            yield self.experience

    def publish(self, version):
        pass

    def release(self, count):
        pass

    def columns(self):
        return {}


@pytest.fixture
def begin(monkeypatch):
    """Return a function that makes a run, given the games and lives that end in its rollouts."""
    monkeypatch.setattr(loop, "time", clock := Clock())
    options = RunOptions(
        env="TMaze",
        core="feedforward",
        batch_size=STREAMS,
        checkpoint_minutes=1,
        learner=LearnerConfig(total_steps=UPDATES * LENGTH * STREAMS),
    )
    network = Network(options.network((4,), 3))
    collected = Actor(network, envs.make("TMaze", STREAMS)).collect(LENGTH)

    def begin(replicas: Replicas | None = None, **ended) -> Training:
        source = Repeated(Experience(collected._replace(**ended), 0), clock)
        metrics = Metrics(lambda row: None)
        return Training(options, network, source, metrics, Stages("learner"), replicas)

    return begin


def test_games_and_lives_are_logged_as_they_were_played(begin):
    games = [
        envs.Episode(0, 0, 7.0, (5.0, 2.0), agent_steps=30, emulator_frames=130),
        envs.Episode(1, 0, -1.0, (-1.0,), agent_steps=20, emulator_frames=78),
    ]
    lives = [envs.Life(0, 5.0, 10, 40), envs.Life(0, 2.0, 20, 90), envs.Life(1, -1.0, 20, 78)]
    training = begin(episodes=games, lives=lives)
    row = training.metrics.log(next(training.rows()))
    expected = {
        "episode_returns": (7.0, -1.0),
        "mean_episode_return": 3.0,
        "mean_episode_step": 25,
        "mean_life_return": 2.0,
        "recent_full_game_return": 3.0,
        "recent_life_return": 2.0,
        "recent_game_agent_steps": 25,
        "recent_game_emulator_frames": 104,
        "games": 2,
        "lives": 3,
    }
    assert {name: row[name] for name in expected} == expected


def test_the_policy_lag_is_the_largest_of_all_learners(begin):
    replicas = Replicas()
    others = [[LAG, lag, 0, 0] for lag in (1, 3, 2)]
    replicas.gather = lambda own, columns: [*own, *others]
    assert next(begin(replicas).rows())["policy_lag"] == 3


def test_a_run_is_saved_once_an_interval_and_at_its_end(begin):
    training, saved = begin(), []
    display = ProgressDisplay(training.options.learner.total_steps, stream=io.StringIO())
    train(training, training.rows(), display, lambda: saved.append(training.learner.updates))
    assert saved == [3, 6, 9, UPDATES]
