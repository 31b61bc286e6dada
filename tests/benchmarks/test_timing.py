"""Common parts of benchmarks: alternation, progress messages, ratios, rates, torch's settings."""

from argparse import Namespace

import pytest
import torch

from benchmarks.timing import (
    LONG,
    logged_rate,
    median_ratio,
    play_rounds,
    told_rounds,
    use_options,
)


def test_cases_alternate_in_both_orders_and_each_is_printed(capsys):
    played: list[str] = []

    def case(name: str, values: list[float]):
        def play() -> float:
            played.append(name)
            return values.pop(0)

        return play

    cases = {"peer": case("peer", [10.0, 20.0]), "ours": case("ours", [70.0, 100.0])}
    found = play_rounds(cases, 2, "{:.0f} steps".format)
    assert found == {"peer": [10.0, 20.0], "ours": [70.0, 100.0]}
    assert played == ["peer", "ours", "ours", "peer"]
    assert capsys.readouterr().err.splitlines()[-1] == "round 2: peer 20 steps"


def test_ratios_are_of_the_same_round():
    assert median_ratio(of=[70.0, 500.0, 160.0], to=[10.0, 100.0, 20.0]) == 7.0


@pytest.mark.parametrize(
    ("a_round", "said"), [(LONG / 4, []), (LONG, ["1 of 3", "2 of 3", "3 of 3"])]
)
def test_rounds_are_printed_if_they_take_long(a_round, said, capsys):
    assert list(told_rounds(3, a_round)) == [1, 2, 3]
    assert capsys.readouterr().err.splitlines() == [f"round {line}" for line in said]


@pytest.mark.parametrize(("rows", "rate"), [(3, 5.0), (5, 10.0)])
def test_a_rate_is_of_whole_time_and_all_updates_after_the_warm_up(rows, rate):
    """Updates come in bursts; the time of an update counts from the row before it."""
    logs = {"step": [10, 20, 30, 40, 50], "_time": [100.0, 104.0, 106.0, 106.5, 107.0]}
    assert logged_rate({name: column[:rows] for name, column in logs.items()}, 2) == rate


def test_a_gpu_would_compute_as_in_training(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    use_options(Namespace(json=None, rounds=1, seconds=1.0, threads=None, device="cpu"))
    assert not torch.backends.cudnn.allow_tf32
