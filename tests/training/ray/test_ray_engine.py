"""Training with actors in Ray's processes: equal results, and failing actors."""

import functools
import os
import signal
import statistics
import time
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import ray_processes
import small_runs
import torch
from ray_cluster import LOOPBACK, TestCluster
from ray_games import assert_streams_in_order, expected_seeds
from ray_stand_ins import Repeats, StandIn
from small_runs import logged, train, wait_until
from test_rollout_wire import assert_same, play

from fastweights.agents.learner import Learner
from fastweights.agents.network import Network, NetworkConfig
from fastweights.envs.interface import BrokenEnvironment
from fastweights.host.progress import ProgressDisplay
from fastweights.host.stages import Stages
from fastweights.training.ray.wire import pack
from fastweights.training.schedules.experience import SourceFailed
from fastweights.training.schedules.rollout_queue import RolloutQueue

pytestmark = [
    pytest.mark.accidents,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
RDN = ("--core", "rdn", "--core-width", 16, "--core-heads", 2, "--core-layers", 1)
MINUTE = 60.0  # seconds for which an actor is stopped
COUNTS = ("actors", "actor_restarts", "lost_rollouts")


@pytest.fixture(scope="module")
def address():
    os.environ.update(LOOPBACK)
    with TestCluster(num_cpus=3) as made:
        yield made.address


@pytest.fixture
def connected(address):
    import ray

    ray.init(address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.fixture
def crew(connected):
    """Return a function that makes a crew of stand-ins and records what it returns."""
    from fastweights.training.ray.crew import Crew

    made = []

    def make(size: int, fails=lambda number: "", cpus=0.1, once=None):
        def start(number, incarnation):
            remote = connected.remote(StandIn).options(num_cpus=cpus)
            return remote.remote(number, incarnation, fails(number), once)

        given_back: list[int] = []
        made.append(Crew(start, size, given_back.append))
        made[-1].begin()
        return made[-1], given_back

    yield make
    for one in made:
        one.end()


def deliveries(crew, enough) -> list[str]:
    """Return messages until `enough(messages)`, asking free actors in between."""
    found, seen, deadline = [], None, 0.0
    while not enough(found):
        if seen != (now := (len(found), crew.actors, crew.restarts)):  # there was progress
            seen, deadline = now, time.monotonic() + 60
        assert time.monotonic() < deadline, found
        while member := crew.who_is_free():
            crew.ask(member, (0, []))
        for delivery in crew.deliveries(0.05):
            crew.has_delivered(delivery.member)
            found.append(delivery.packed.decode())
    return found


def some_of_each(found: list[str]) -> bool:
    return all(sum(message.startswith(f"{number} ") for message in found) > 3 for number in (0, 1))


def test_rollouts_come_in_each_actor_s_order_and_none_has_more_than_two_to_do(crew):
    crew, given_back = crew(2)
    found = deliveries(crew, some_of_each)
    for number in range(2):
        own = [message for message in found if message.startswith(f"{number} ")]
        assert own == [f"{number} 0 {count}" for count in range(len(own))]
    while crew.who_is_free():
        crew.ask(crew.who_is_free(), (0, []))
    assert sum(len(member.asked) for member in crew._members) == 4
    assert (crew.actors, crew.restarts, crew.lost, given_back) == (2, 0, 0, [])


def test_no_actor_is_passed_over_when_rollouts_arrive_faster_than_they_are_used(crew, connected):
    crew, _ = crew(4)
    deliveries(crew, lambda found: crew.actors == 4)
    found = []
    while len(found) < 24:
        found += deliveries(crew, len)
        awaited = [member.next for member in crew._members]
        assert len(connected.wait(awaited, num_returns=4, timeout=60)[0]) == 4
    counts = [sum(message.startswith(f"{number} ") for message in found) for number in range(4)]
    assert min(counts) >= 2


@pytest.mark.parametrize("how", ["dies", "raises", "is newer"])
def test_an_actor_that_fails_is_replaced_and_its_rollout_counted(how, crew, tmp_path):
    taken = tmp_path / "taken"

    def replaced(found: list[str]) -> bool:
        if "1 0 0" in found:
            taken.touch()
        return "1 1 0" in found

    crew, given_back = crew(2, lambda number: how * (number == 1), once=taken)
    found = deliveries(crew, replaced)
    assert [m for m in found if m.startswith("1 0 ")] == ["1 0 0"]
    assert crew.actors == 2
    assert (crew.restarts, crew.lost, given_back) == (1, 1, [2])


def test_what_no_actor_sends_is_a_lost_rollout_and_a_line(connected, monkeypatch, capsys):
    from fastweights.training.ray.actors import RayActors

    experience, form = play("Catch", "feedforward")
    other, _ = play("Catch", "feedforward", length=7)
    bad = (
        (pack(other), {}),
        (pack(experience), {"sleeping": (1.0, 1)}),
        (b"no rollout at all", {}),
        (pack(experience), None),
        (pack(experience._replace(version="7")), {}),
    )
    good = (pack(experience._replace(version=7)), {"emulation": (0.5, 3)})

    def start(self, job, cpus, gpus, number, incarnation):
        remote = connected.remote(Repeats).options(num_cpus=0.1)
        return remote.remote([good, *bad[incarnation : incarnation + 1]])

    monkeypatch.setattr(RayActors, "_start", start)
    sizes = {"frame_shape": form.frame.shape[2:], "num_actions": form.policy_logits.shape[-1]}
    actors = RayActors(
        Network(NetworkConfig(core="feedforward", **sizes)),
        SimpleNamespace(close=lambda: None),
        job=None,
        size=1,
        cpus=0.1,
        gpus=0.0,
        form=form,
        slots=2,
        learner_device=torch.device("cpu"),
        stages=Stages("learner"),
    )
    actors.publish(7)
    with actors:
        for _, rollout in zip(range(10), actors.rollouts(), strict=False):
            assert_same(rollout, experience._replace(version=7))
            actors.release(1)
        columns = actors.columns()
        assert (columns["actors"], columns["actor_restarts"]) == (1, 5)
        assert 5 <= columns["lost_rollouts"] <= 10  # including the rollout that each had begun
    said = capsys.readouterr().err.splitlines()
    begin = "note: replacing actor 0: its data is not a valid rollout: "
    reasons = ("frame is", "times of unknown stages: sleeping", "not a rollout", "its times are no")
    for line, reason in zip(said, (*reasons, "the version '7' is no"), strict=True):
        assert line.startswith(begin + reason)


def test_an_actor_that_fails_again_and_again_ends_the_run(crew, monkeypatch):
    monkeypatch.setattr("fastweights.training.ray.crew.PAUSE", 0.01)
    crew, _ = crew(1, lambda number: "always")
    with pytest.raises(SourceFailed, match=r"actor 0 failed 5 times in a row.*no such game"):
        deliveries(crew, len)
    assert (crew.restarts, crew.lost) == (5, 0)


def test_an_environment_s_bad_answer_ends_the_run_at_once(crew):
    crew, _ = crew(2, lambda number: "bad answer" * (number == 1))
    with pytest.raises(BrokenEnvironment) as caught:
        deliveries(crew, lambda found: False)
    assert str(caught.value) == "Game-v0, environment 0: the reward is nan"
    assert crew.restarts == 0


def test_the_run_ends_only_if_all_actors_fail_without_a_delivery():
    from fastweights.training.ray.crew import Crew

    crew = Crew(lambda number, incarnation: None, 2, lambda count: None)
    one, other = crew._members
    one.failures, other.failures = 5, 1
    assert crew._all_fail_like(one)
    crew.has_delivered(other)
    assert not crew._all_fail_like(one)
    other.failures = 1  # fails again
    assert not crew._all_fail_like(one)


@pytest.mark.faults
def test_a_failing_actor_does_not_end_the_run_while_another_delivers(crew, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.training.ray.crew.PAUSE", 0.01)
    monkeypatch.setattr("fastweights.training.ray.crew.FAILURES_IN_A_ROW", 2)
    crew, _ = crew(2, lambda number: "always" * (number == 1))
    deliveries(crew, lambda found: crew.restarts == 2)
    monkeypatch.setattr("fastweights.training.ray.crew.PAUSE", 1000.0)
    deliveries(crew, lambda found: crew.restarts == 3)
    deliveries(crew, lambda found: len(found) > 20)  # a failing actor delays no other
    assert (crew.actors, crew.restarts, crew.failing) == (1, 3, 1)
    said = [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["replacing actor 1" + when for when in ("", " in 0.01 s", " in 2000 s")]


def test_an_actor_that_cannot_be_placed_waits(crew):
    crew, _ = crew(5, cpus=1.0)  # of which 3 fit
    deliveries(crew, lambda found: crew.actors == 3)
    deliveries(crew, lambda found: len(found) > 20)
    assert (crew.actors, crew.restarts) == (3, 0)


REUSE = ("--epochs", 2, "--minibatches", 2)


@pytest.mark.parametrize(
    "learner", [(), (*REUSE, "--objective", "ppo"), (*REUSE, "--objective", "appo")]
)
def test_one_actor_without_a_lead_is_lockstep_bit_for_bit(learner, address, tmp_path):
    """Sent rollouts equal collected ones, and actors use exactly the published weights."""
    options = ("--total-steps", 200, "--num-envs", 8, *RDN, *learner)
    alone = ("--engine", "ray", "--ray-address", address, "--num-actors", 1, "--queue-size", 0)
    assert train(tmp_path, "lockstep", *options) == 0
    assert train(tmp_path, "ray", *options, *alone) == 0
    expected, found = logged(tmp_path / "lockstep"), logged(tmp_path / "ray")
    assert [found.pop(name) for name in COUNTS] == [[1] * 10, [0] * 10, [0] * 10]
    assert found == expected
    theirs = small_runs.weights(tmp_path / "lockstep")
    for name, tensor in small_runs.weights(tmp_path / "ray").items():
        assert torch.equal(tensor, theirs[name]), name


STAMPED = (
    *("--env", "ray_games:StampedCatch-v0", "--num-envs", 48, "--batch-size", 24),
    *("--unroll-length", 22, "--learning-rate", 2e-3, "--reduction", "mean", "--epsilon", 1e-5),
    *("--entropy-cost", 0.02, "--num-actors", 2, "--engine", "ray"),
)


class KillingDisplay(ProgressDisplay):
    """A display that kills an actor while it shows the twentieth update."""

    def update(self, step, row):
        super().update(step, row)
        if row["updates"] == 20:
            os.kill(ray_processes.actors(os.getpid())[0], signal.SIGKILL)


@pytest.mark.faults
def test_it_learns_and_loses_nothing_but_what_a_killed_actor_held(address, tmp_path, monkeypatch):
    seen, update, queues, put = [], Learner.update, set(), RolloutQueue.put

    def noted(self, experience):
        queues.add(self)
        put(self, experience)

    def slow_twice(self, rollout):
        seen.append(rollout.frame[:-1, :, -2:].clone())
        if len(seen) == 12:  # back-pressure: one of three slots is in use by the learner
            (queue,) = queues
            wait_until(lambda: len(queue) == 2)
            time.sleep(0.5)
            assert len(queue) == 2
        if len(seen) == 130:  # learning may be faster than the start of a process
            wait_until(lambda: len(ray_processes.actors(os.getpid())) == 2)
        return update(self, rollout)

    monkeypatch.setattr(RolloutQueue, "put", noted)
    monkeypatch.setattr(Learner, "update", slow_twice)
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", KillingDisplay)
    steps = 140 * 24 * 22
    options = (*STAMPED, "--ray-address", address, "--total-steps", steps, "--seed", 5)
    assert train(tmp_path, "run", *options) == 0
    logs = logged(tmp_path / "run")
    # No step is counted twice.
    assert logs["step"] == [24 * 22 * update for update in logs["updates"]]
    assert logs["step"][-1] == steps == sum(frames[..., 0].numel() for frames in seen)
    assert max(logs["learner_queue_size"]) <= 2
    # The other actor may pass a slow one any number of times; mostly the slots limit it.
    assert max(logs["policy_lag"]) >= 1 and statistics.median(logs["policy_lag"]) <= 3
    # One actor was killed.
    assert logs["actor_restarts"][-1] == logs["lost_rollouts"][-1] == 1
    assert {1, 2} == set(logs["actors"]) and logs["actors"][-1] == 2
    # Every stream is in order from its start, without gaps; the new actor plays other games.
    assert_streams_in_order(seen, expected_seeds(5))
    # The agent learns.
    assert logs["recent_full_game_return"][-1] > 0.5 > logs["recent_full_game_return"][5]


@pytest.mark.faults
@pytest.mark.parametrize(("breaks_at", "code"), [(130, 0), (3, 2)])
def test_an_environment_that_raises(breaks_at, code, address, tmp_path, capsys):
    options = (*STAMPED, "--ray-address", address, "--env-options", f"breaks_at={breaks_at}")
    run = functools.partial(train, tmp_path, "run", *options, "--total-steps", 20 * 24 * 22)
    if code == 0:
        assert run() == 0
        logs = logged(tmp_path / "run")
        assert logs["actor_restarts"][-1] >= 2 <= logs["lost_rollouts"][-1]
        return
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == code
    errors = capsys.readouterr().err
    assert "failed 5 times in a row" in errors and "Broken: at step 3" in errors
    *notes, last = errors.splitlines()
    assert len(notes) >= 4 and last.startswith("error: actor")
    assert [line for line in notes if not line.startswith("note: replacing actor")] == []
    assert not (tmp_path / "run").exists()  # nothing was learned, and the name is free again


class StoppingActors(ProgressDisplay):
    """A display that lets a stopped actor continue after a minute, and later interrupts the run."""

    file, since, stopped, again = None, 0.0, 0, 0  # `stopped` and `again` count updates

    def update(self, step, row):
        super().update(step, row)
        cls = StoppingActors
        if not self.stopped and cls.file.exists():
            cls.since, cls.stopped = time.monotonic(), row["updates"]
        elif self.stopped and not self.again and time.monotonic() - self.since > MINUTE:
            os.kill(int(cls.file.read_text()), signal.SIGCONT)
            cls.again = row["updates"]
        elif self.again and row["updates"] == self.again + 30:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.faults
def test_an_actor_stopped_for_a_minute_delays_no_other(address, tmp_path, monkeypatch):
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingActors)
    StoppingActors.file = tmp_path / "stopped"
    amid_its_tenth_rollout = f"stops_at={10 * 22 - 11}"
    games = ("--env-options", amid_its_tenth_rollout, f"stops_as={StoppingActors.file}")
    options = (*STAMPED, *games, "--ray-address", address, "--total-steps", 10**9)
    assert train(tmp_path, "run", *options) == 128 + signal.SIGINT
    logs, stopped, again = logged(tmp_path / "run"), StoppingActors.stopped, StoppingActors.again
    assert logs["actor_restarts"][-1] == logs["lost_rollouts"][-1] == 0
    assert logs["step"] == [24 * 22 * update for update in logs["updates"]]
    assert again > stopped + 20, "the other actor must go on alone"
    assert max(logs["policy_lag"][again:]) >= again - stopped, "its late rollout must arrive"


class GrowingCluster(ProgressDisplay):
    """A display that adds a node at the tenth update and removes it after a while."""

    cluster = node = None
    since = 0

    def update(self, step, row):
        super().update(step, row)
        cls = GrowingCluster
        if row["updates"] == 10:
            cls.node = cls.cluster.add_node(num_cpus=2)
        if row["actors"] == 4 and cls.node is not None:
            cls.since = cls.since or row["updates"]
            if row["updates"] == cls.since + 20:
                os.killpg(cls.node.pid, signal.SIGKILL)
                cls.node = None


@pytest.mark.faults
def test_a_node_joins_and_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", GrowingCluster)
    update = Learner.update
    monkeypatch.setattr(Learner, "update", lambda s, r: time.sleep(0.1) or update(s, r))
    with TestCluster(num_cpus=2, others=True) as made:
        GrowingCluster.cluster = made
        options = (*STAMPED, "--ray-address", made.address, "--num-actors", 4)
        assert train(tmp_path, "run", *options, "--total-steps", 500 * 24 * 22) == 0
    logs = logged(tmp_path / "run")
    actors = logs["actors"]
    assert max(actors[:10]) <= 2 < max(actors) == 4
    assert actors[-1] == 2 and logs["actor_restarts"][-1] == 2
    assert logs["step"] == [24 * 22 * update for update in logs["updates"]]
