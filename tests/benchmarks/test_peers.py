"""Beside Sample Factory: turns, ratios, its rate after the warm-up, and what a person gets wrong.

Sample Factory itself has an environment of its own and is not run here.
"""

import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.peers import FOLDER, OURS, measure, sample_factory, times
from launch.failures import UserError

# Not a part of this project's packages: it runs in Sample Factory's environment.
RUN = runpy.run_path(str(FOLDER / "run.py"))
WARM_UP, arguments, rate = (RUN[name] for name in ("WARM_UP", "arguments", "rate"))


def test_cases_take_turns():
    played: list[str] = []

    def case(name: str, values: list[float]):
        def play() -> float:
            played.append(name)
            return values.pop(0)

        return play

    cases = {"peer": case("peer", [10.0, 20.0]), OURS: case(OURS, [70.0, 100.0])}
    assert measure(cases, 2) == {"peer": [10.0, 20.0], OURS: [70.0, 100.0]}
    assert played == ["peer", OURS] * 2


def test_ratios_are_of_the_same_round():
    rates = {"peer": [10.0, 100.0, 20.0], OURS: [70.0, 500.0, 160.0]}
    assert times(rates, "peer") == 7.0


def test_the_warm_up_is_not_counted():
    slow = [(100.0 * i, 1600 * i) for i in range(WARM_UP + 1)]
    start, steps = slow[-1]
    fast = [(start + 10.0 * i, steps + 1600 * i) for i in range(1, 4)]
    assert rate(slow + fast) == 160.0


def test_too_few_updates_have_no_rate():
    with pytest.raises(ValueError, match="--seconds"):
        rate([(1.0 * i, 1600 * i) for i in range(WARM_UP + 1)])


@pytest.mark.parametrize(("mode", "cores"), [("serial", 2), ("async", 2), ("async", 8)])
def test_sample_factory_plays_as_many_games_in_every_mode(mode: str, cores: int):
    given = dict(
        word.removeprefix("--").split("=") for word in arguments("Qbert", mode, 60, cores, "runs")
    )
    assert int(given["num_workers"]) * int(given["num_envs_per_worker"]) == 32
    assert int(given["batch_size"]) == 32 * int(given["rollout"]) == 32 * int(given["recurrence"])


def test_a_peer_that_fails_says_why():
    """Its environment is not this one: Sample Factory is not installed here."""
    with pytest.raises(UserError, match=r"No module named '\w+'"):
        sample_factory(Path(sys.executable), "serial", "Qbert", 1.0)
