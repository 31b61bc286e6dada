"""Emulators have as many threads as the run may use CPUs, not as many as the machine has."""

import pytest

from fastweights import envs
from fastweights.training.assembly import plan_for
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas


@pytest.fixture
def made(monkeypatch) -> list[int]:
    """Record the number of threads that environments are made with."""
    threads, make = [], envs.make

    def listen(*given, num_threads, **options):
        threads.append(num_threads)
        return make(*given, num_threads=1, **options)

    monkeypatch.setattr(envs, "make", listen)
    return threads


@pytest.mark.parametrize(
    ("asked", "cpus", "learners", "threads"),
    [(0, 3, 1, 3), (0, 6, 2, 3), (2, 6, 1, 2), (0, 100, 1, 8)],
    ids=["all CPUs", "a learner's share", "as asked", "one an environment"],
)
def test_a_run_s_emulators_take_its_cpus(asked, cpus, learners, threads, made, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CPUS", str(cpus))
    size = 8 * learners
    options = RunOptions(
        env="Pong", num_envs=size, batch_size=size, num_threads=asked, device="cpu"
    )
    replicas = Replicas(count=learners, local_count=learners)
    _, plan = plan_for(options, replicas)
    for environments in plan.environments(0):
        environments.close()
    assert made == [threads]
