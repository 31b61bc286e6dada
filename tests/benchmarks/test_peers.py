"""The comparison with Sample Factory: its games, its rate after the warm-up, and failures.

Sample Factory needs a separate environment and is not run here.
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import FOLDER, sample_factory
from fastweights.host.errors import UserError

# The script belongs to Sample Factory's environment, not to this project's packages.
RUN = runpy.run_path(str(FOLDER / "run.py"))
WARM_UP, arguments, rate = (RUN[name] for name in ("WARM_UP", "arguments", "rate"))


def test_the_warm_up_is_not_counted():
    slow = [(100.0 * i, 1600 * i) for i in range(WARM_UP + 1)]
    start, steps = slow[-1]
    fast = [(start + 10.0 * i, steps + 1600 * i) for i in range(1, 4)]
    assert rate(slow + fast) == 160.0


def test_too_few_updates_have_no_rate():
    with pytest.raises(ValueError, match="--seconds"):
        rate([(1.0 * i, 1600 * i) for i in range(WARM_UP + 1)])


@pytest.mark.parametrize(
    ("mode", "cores", "workers"),
    [
        ("serial", 2, 1),
        *(("async", *each) for each in ((1, 1), (2, 2), (8, 8), (10, 8), (12, 8), (64, 16))),
    ],
)
def test_sample_factory_plays_as_many_games_in_every_mode(mode: str, cores: int, workers: int):
    given = dict(
        word.removeprefix("--").split("=") for word in arguments("Qbert", mode, 60, cores, "runs")
    )
    assert int(given["num_workers"]) == workers
    assert workers * int(given["num_envs_per_worker"]) == 32
    assert int(given["num_envs_per_worker"]) % int(given["worker_num_splits"]) == 0
    assert int(given["batch_size"]) == 32 * int(given["rollout"]) == 32 * int(given["recurrence"])


def test_a_peer_is_given_the_cores_that_may_be_used(monkeypatch):
    asked = []

    def run(words, **how):
        asked.append((words[words.index("--cores") + 1], how["env"]["OMP_NUM_THREADS"]))
        return subprocess.CompletedProcess(words, 0, '{"agent_steps_per_second": 5.0}', "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("FASTWEIGHTS_CPUS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(1000), raising=False)
    assert sample_factory(Path("python"), "async", "Qbert", 1.0) == 5.0
    assert asked == [("1000", "1000")]


def test_a_peer_that_fails_says_why():
    """Sample Factory is not installed in this environment."""
    with pytest.raises(UserError, match=r"No module named '\w+'"):
        sample_factory(Path(sys.executable), "serial", "Qbert", 1.0)
