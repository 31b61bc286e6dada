"""The asynchronous schedule on a CPU: where it equals lockstep, and its failures."""

import dataclasses
import itertools
import re
import statistics
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import small_runs
import torch
from small_runs import GROUPS, assert_same_run, logged, train, wait_until

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.learner import Learner
from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES
from fastweights.cores.feedforward import Feedforward
from fastweights.envs.catch import Catch
from fastweights.host.stages import Stages
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.training.schedules import asynchronous
from fastweights.training.schedules.asynchronous import Asynchronous, Group, slots
from fastweights.training.schedules.rollout_queue import RolloutQueue

RDN = ("--core", "rdn", "--core-width", 16, "--core-heads", 2, "--core-layers", 1)
IN_TURN = ("--schedule", "asynchronous", "--env-groups", "1", "--queue-size", "0")


# One update a collection (lag 0), and two (lags 0 and 1).
@pytest.mark.parametrize("num_envs", [4, 8])
def test_one_group_without_lead_is_lockstep_bit_for_bit(num_envs, tmp_path):
    options = ("--total-steps", 200, "--num-envs", num_envs, *RDN)
    assert train(tmp_path, "lockstep", *options) == 0
    assert train(tmp_path, "asynchronous", *options, *IN_TURN) == 0
    assert_same_run(tmp_path / "lockstep", tmp_path / "asynchronous")
    assert set(logged(tmp_path / "lockstep")["policy_lag"]) == set(range(num_envs // 4))


def test_with_a_lead_it_is_another_run(tmp_path):
    assert train(tmp_path, "lockstep", "--total-steps", 200) == 0
    assert train(tmp_path, "ahead", "--total-steps", 200, *IN_TURN, "--queue-size", 1) == 0
    assert 1 in logged(tmp_path / "ahead")["policy_lag"]
    assert logged(tmp_path / "ahead")["total_loss"] != logged(tmp_path / "lockstep")["total_loss"]


def test_a_resumed_run_goes_on_in_either_schedule(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "fastweights.experiments.agents.run.ProgressDisplay", small_runs.StoppingDisplay
    )
    for xpid in ("lockstep", "asynchronous"):
        assert train(tmp_path, xpid, "--total-steps", 200, "--env", "CartPole-v1") == 130
    # CartPole restarts its games in both schedules; Catch would restore them in lockstep.
    monkeypatch.undo()
    for xpid, options in (("lockstep", ()), ("asynchronous", IN_TURN)):
        resumed = ("--resume", str(tmp_path / xpid))
        assert small_runs.atari.main([*resumed, *options]) == 0
    assert logged(tmp_path / "lockstep")["step"] == list(range(20, 201, 20))
    assert_same_run(tmp_path / "lockstep", tmp_path / "asynchronous")


def test_real_atari_in_two_groups_and_a_batch_of_another_size(tmp_path):
    options = ("--env", "Qbert", "--stem", "shallow", "--num-envs", 3, "--batch-size", 2)
    assert train(tmp_path, "qbert", *options, *GROUPS, "--total-steps", 100) == 0
    logs = read_logs(tmp_path / "qbert")
    assert logs["step"] == list(range(10, 101, 10))
    assert sum(logs["seconds_emulation"]) > 0
    assert max(logs["policy_lag"]) > 0
    assert not small_runs.acting_threads()


def test_a_slow_learner_holds_acting_back_and_loses_nothing(register_game, tmp_path, monkeypatch):
    """Frames tell stream and step, so that the learner can check that none is lost or swapped."""
    register_game("Counting-v0", vector_entry_point=CountingSteps)
    seen, update, queues, put = [], Learner.update, [], RolloutQueue.put

    def noted(self, experience):
        put(self, experience)
        queues[:] = [self]

    def slow(self, rollout):
        seen.append(rollout.frame[:-1, :, 0].clone())
        if len(seen) % 10 == 0:  # the queue fills up, but no further
            wait_until(lambda: len(queues[0]) == 2)
            time.sleep(0.1)
            assert len(queues[0]) == 2
        return update(self, rollout)

    monkeypatch.setattr(RolloutQueue, "put", noted)
    monkeypatch.setattr(Learner, "update", slow)
    options = ("--env", "Counting-v0", "--num-envs", 4, "--batch-size", 2, "--total-steps", 1200)
    assert train(tmp_path, "slow", *options, *GROUPS) == 0
    logs = logged(tmp_path / "slow")
    assert logs["step"][-1] == 1200 == sum(frames.numel() for frames in seen)
    assert len(seen) >= 100 and max(logs["learner_queue_size"]) <= 2  # --queue-size
    # The rollout before it, and itself; if the machine delays a thread, the other may pass it.
    assert statistics.median(logs["policy_lag"]) <= 3
    for stream in range(4):
        of_stream = [frames[:, frames[0] // 10_000 == stream].flatten() for frames in seen]
        steps = torch.cat(of_stream) % 10_000
        assert len(steps), f"no rollout of stream {stream} arrived"
        assert torch.equal(steps, torch.arange(len(steps)))


class CountingSteps(Catch):
    """Catch whose first number is 10,000 times the stream, plus the step of the stream."""

    made = 0

    def __init__(self, num_envs=1, render_mode=None):
        super().__init__(num_envs, render_mode)
        self.first = CountingSteps.made
        CountingSteps.made = (CountingSteps.made + num_envs) % 4
        self.steps = -1

    def reset(self, **options):
        observation, info = super().reset(**options)
        self.steps = 0
        return self._stamped(observation), info

    def step(self, actions):
        observation, *rest = super().step(actions)
        self.steps += 1
        return self._stamped(observation), *rest

    def _stamped(self, observation):
        observation = observation.copy()
        observation[:, 0] = 10_000 * (self.first + np.arange(self.num_envs)) + self.steps
        return observation


@pytest.mark.parametrize(
    ("sizes", "batch_size", "ahead", "expected"),
    [
        ([16, 16], 32, 0, 2),
        ([16, 16], 32, 2, 4),
        ([64], 32, 0, 1),
        # 24 and 8 of 24; then the 16 that remain must not occupy the last slot.
        ([24, 24], 32, 0, 3),
        ([3, 2], 4, 1, 4),
    ],
)
def test_slots_are_enough_for_a_batch(sizes, batch_size, ahead, expected):
    assert slots(sizes, batch_size, ahead) == expected


@pytest.mark.parametrize(("num_envs", "batch_size"), [(3, 2), (3, 4), (5, 4), (7, 3)])
def test_no_sizes_make_it_wait_for_ever(num_envs, batch_size, tmp_path):
    sizes = ("--num-envs", num_envs, "--batch-size", batch_size, "--unroll-length", 1)
    assert train(tmp_path, "run", *sizes, *GROUPS, "--queue-size", 0, "--total-steps", 60) == 0


class Broken(Exception):
    pass


class BreakingCatch(Catch):
    """A game that raises at a step, or at its reset if this step is 0."""

    def __init__(self, num_envs=1, render_mode=None, at=30):
        super().__init__(num_envs, render_mode)
        self.left = at

    def reset(self, **options):
        if self.left == 0:
            raise Broken("reset")
        return super().reset(**options)

    def step(self, actions):
        self.left -= 1
        if self.left == 0:
            raise Broken("step")
        return super().step(actions)


class SlowCatch(Catch):
    """A game whose thirtieth step waits until a warning names its thread, then takes a second."""

    left, named = 30, threading.Event()

    def step(self, actions):
        self.left -= 1
        if self.left == 0:
            asynchronous.STUCK_AFTER = 1.0
            assert self.named.wait(60)
            asynchronous.STUCK_AFTER = 60.0
        return super().step(actions)


def test_a_thread_that_is_stuck_is_named_once(register_game, tmp_path, monkeypatch, capsys):
    say = Asynchronous._say_who_is_stuck

    def say_and_let_go(self):
        say(self)
        if self._stuck:
            SlowCatch.named.set()

    monkeypatch.setattr(Asynchronous, "_say_who_is_stuck", say_and_let_go)
    monkeypatch.setattr(asynchronous, "STUCK_AFTER", 60.0)
    monkeypatch.setattr(asynchronous, "_PATIENCE", 60.0)
    register_game("Slow-v0", vector_entry_point=SlowCatch)
    assert train(tmp_path, "slow", "--env", "Slow-v0", *IN_TURN, "--total-steps", 600) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    (warning,) = warnings
    line = r"warning: actor 0 has been in emulation for \d+ s; Ctrl-C ends the run"
    assert re.fullmatch(line, warning)


def test_a_stopped_process_reports_no_stuck_thread(monkeypatch, capsys):
    """The check runs every twenty seconds, and the thread is in inference each time."""
    now, cpu, stages = 1000.0, torch.device("cpu"), Stages("learner")
    monkeypatch.setattr(
        "fastweights.training.schedules.asynchronous.time", SimpleNamespace(monotonic=lambda: now)
    )
    network = Network(NetworkConfig(frame_shape=(4,), num_actions=3, core="feedforward"))
    devices = {"actor_device": cpu, "learner_device": cpu}
    source = Asynchronous(network, [], length=1, slots=1, stages=stages, **devices)
    source.threads = stages, SimpleNamespace(name="actor 0", going_on=("inference", 62.0))
    said = []
    for passed in (100.0, 20.0, 20.0, 20.0, 20.0):
        now += passed
        source._say_who_is_stuck()
        said.append(capsys.readouterr().err)
    assert said[:4] == [""] * 4 and said[4].startswith("warning: actor 0 has been in inference")


def test_a_rollout_has_the_version_that_acted_and_not_a_later_one(monkeypatch):
    """New weights are published in the middle of every collection."""
    cpu, stages = torch.device("cpu"), Stages("learner")
    network = Network(NetworkConfig(frame_shape=(4,), num_actions=3, core="feedforward"))
    groups = [Group(envs.make("TMaze", 2), torch.Generator())]
    devices = {"actor_device": cpu, "learner_device": cpu}
    source = Asynchronous(network, groups, length=2, slots=1, stages=stages, **devices)
    collect, versions = Actor.collect, itertools.count(1)

    def publish_and_collect(self, length):
        source._store.publish(network, next(versions))
        return collect(self, length)

    monkeypatch.setattr(Actor, "collect", publish_and_collect)
    source.publish(0)
    acted = []
    with source:
        for experience in itertools.islice(source.rollouts(), 3):
            acted.append(experience.version)
            source.release(1)
    assert acted == [0, 1, 2]


class BreakingCore(Feedforward):
    """A core that raises when it unrolls `rows` rows: 1 in acting, more in learning."""

    rows, left = 0, 30

    def unroll(self, x, state, is_first):
        if len(x) == self.rows:
            BreakingCore.left -= 1
            if BreakingCore.left < 0:
                raise Broken("unroll")
        return super().unroll(x, state, is_first)


@pytest.fixture
def breaking_env(register_game):
    register_game("Breaking-v0", vector_entry_point=BreakingCatch)


OFTEN = ("--total-steps", 100_000, "--checkpoint-minutes", 1e-6)


def breaks(folder, *options) -> None:
    with pytest.raises(Broken):
        train(folder, "broken", *OFTEN, *options)
    assert not small_runs.acting_threads()


@pytest.mark.parametrize("at", [0, 30])
@pytest.mark.parametrize("schedule", [("--schedule", "lockstep"), GROUPS])
@pytest.mark.usefixtures("breaking_env")
def test_an_environment_that_breaks_ends_the_run(at, schedule, tmp_path):
    breaks(tmp_path, "--env", "Breaking-v0", "--env-options", f"at={at}", *schedule)
    saved = [
        load_checkpoint(path)["step"] for path in tmp_path.glob("broken/checkpoints/step_*.pt")
    ]
    if at == 30:
        assert max(saved) > 0
    else:  # an environment is reset and stepped once before the folder is made
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("schedule", [("--schedule", "lockstep"), GROUPS])
def test_a_network_that_breaks_ends_the_run(rows, schedule, tmp_path, monkeypatch):
    kind = dataclasses.replace(CORES["feedforward"], build=BreakingCore)
    monkeypatch.setitem(CORES, "feedforward", kind)
    monkeypatch.setattr(BreakingCore, "rows", rows)
    monkeypatch.setattr(BreakingCore, "left", 30)
    breaks(tmp_path, *schedule)
    assert load_checkpoint(tmp_path / "broken" / "model.tar")["step"] > 0
