"""The kernels' benchmark on tiny calls: its rows and table, what it leaves out, and bad input."""

import json
import statistics
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import kernel_calls
from benchmarks.kernels import main
from benchmarks.timing import SHORTEST_SAMPLE, take_turns
from fastweights.kernels.machinery.dispatch import requested_backend

TINY = {
    "rl": {"T": 3, "B": 2, "H": 2, "D": 4},
    "acting1": {"T": 1, "B": 1, "H": 2, "D": 4},
    "acting32": {"T": 1, "B": 2, "H": 2, "D": 4},
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for call, sizes in TINY.items():
        monkeypatch.setitem(kernel_calls.CALLS, call, sizes)
    # It would change the whole process.
    monkeypatch.setattr("benchmarks.kernels.tune_allocator", lambda: None)


def rows_of(folder: Path, *words: str) -> list[dict]:
    few = ("--rounds", "2", "--seconds", "0.1", "--json", str(folder / "kernels.json"))
    main([*words, *few])
    return json.loads((folder / "kernels.json").read_text())["rows"]


@pytest.mark.compiler
def test_every_backend_has_a_row_for_every_call(tmp_path, capsys):
    rows = rows_of(tmp_path, "--ops", "delta_rule", "--sizes", "rl", "act")
    calls = [(row["size"], row["mode"], row["backend"]) for row in rows]
    learning = [("rl", mode) for mode in ("forward", "forward+backward")]
    expected = [*learning, ("acting1", "forward"), ("acting32", "forward")]
    assert calls == [(*c, b) for c in expected for b in ("reference", "cpu", "chunked")]
    for row in rows:
        assert row["best_ms"] <= row["median_ms"] and 1 <= row["rounds"] <= 2
        reference = next(
            r
            for r in rows
            if r["backend"] == "reference" and r["mode"] == row["mode"] and r["size"] == row["size"]
        )
        pairs = zip(reference["seconds"], row["seconds"], strict=True)
        assert row["times_faster"] == pytest.approx(statistics.median(a / b for a, b in pairs))
    assert "faster than reference" in capsys.readouterr().out


@pytest.mark.compiler
def test_ratios_are_of_the_same_round(tmp_path, monkeypatch, capsys):
    # The ratio of medians would be 10.
    seconds = {"reference": [2.0, 8.0, 1.0], "cpu": [0.1, 0.2, 0.4]}
    monkeypatch.setattr("benchmarks.kernels.take_turns", lambda *how: seconds)
    rows = rows_of(tmp_path, "--ops", "delta_rule", "--sizes", "rl", "--modes", "forward")
    assert [row["times_faster"] for row in rows] == pytest.approx([1, 20])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "delta_rule" in line)
    assert [cell.strip() for cell in line.split("│")[4:-1]] == ["2000", "200", "20"]


def test_a_loop_that_keeps_too_much_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernel_calls, "KEPT_STATES", 1e12)
    rows = rows_of(tmp_path, "--ops", "delta_rule", "--sizes", "rl")
    absent = (row for row in rows if "absent" in row)
    (left_out,) = (row for row in absent if row["backend"] == "reference")
    assert left_out["mode"] == "forward+backward"
    assert "no reference, its backward needs about" in capsys.readouterr().out


def test_a_memory_of_unknown_size_suffices(monkeypatch):
    monkeypatch.setattr(kernel_calls, "memory_bytes", lambda: None)
    monkeypatch.setattr(kernel_calls, "KEPT_STATES", 1e12)
    case = kernel_calls.example("delta_rule", "rl", "cpu")
    assert kernel_calls.too_much_memory(case, "cpu") is None


def test_a_loop_too_long_to_compile_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch, "compile", lambda step: step)  # single steps are still compiled
    words = ("--ops", "delta_rule", "--sizes", "rl", "--modes", "forward", "--compile")
    rows = rows_of(tmp_path, *words, "--compile-steps", "2")
    (left_out,) = (row for row in rows if row["backend"] == "torch.compile")
    assert "median_ms" not in left_out and "unrolls 3 steps" in left_out["absent"]
    assert "no torch.compile, the compiler unrolls" in capsys.readouterr().out


def test_a_step_that_does_not_compile_gives_the_reason(tmp_path, monkeypatch):
    def broken(*call):
        raise NotImplementedError("not on this machine\nand more")

    monkeypatch.setattr(torch, "compile", lambda recurrence: broken)
    words = ("--ops", "delta_rule", "--sizes", "rl", "--modes", "forward", "--compile")
    found = {r["backend"]: r.get("absent") for r in rows_of(tmp_path, *words)}
    assert found["torch.compile"] == "does not compile: not on this machine"
    assert found["torch.compile, per step"] == "does not compile: not on this machine"


@pytest.mark.parametrize("mode", ["forward", "forward+backward"])
def test_a_step_at_a_time_is_the_same_call(mode, monkeypatch):
    """With `torch.compile` replaced, the loop over steps gives the operation's results."""
    monkeypatch.setattr(torch, "compile", lambda recurrence: recurrence)
    found: list[torch.Tensor] = []
    timed = kernel_calls.timed

    def kept(recurrence, case, mode):
        def recorded(*call):
            y, state = recurrence(*call)
            found.append(y.detach())
            return y, state

        return timed(recorded, case, mode)

    monkeypatch.setattr(kernel_calls, "timed", kept)
    for name in ("delta_rule", "recurrent_delta_rule"):
        found.clear()
        kernel_calls.compiled(name, "rl", mode, "cpu", most_steps=64)
        expected = kernel_calls.example(name, "rl", "cpu").run()[0]
        assert len(found) >= 2
        for y in found:
            torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


def test_turns_are_taken_and_time_is_bounded():
    played: list[str] = []

    def play(name: str) -> None:
        time.sleep(SHORTEST_SAMPLE)
        played.append(name)

    runs = {name: partial(play, name) for name in "ab"}
    samples = take_turns(runs, rounds=2, seconds=60.0, device="cpu")
    # Warm-up of each; then a warm call and a sample of each in every round.
    assert "".join(played) == "aabb" + "aabb" * 2
    assert all(len(times) == 2 and min(times) >= SHORTEST_SAMPLE for times in samples.values())
    assert [len(times) for times in take_turns(runs, 5, 0.01, "cpu").values()] == [1, 1]


def test_samples_are_taken_within_their_own_surroundings():
    """Each contender's backend is forced during all its calls, and only then."""
    for mode, gradients in (("forward", False), ("forward+backward", True)):
        seen: dict[str, set] = {"reference": set(), "torch.compile": set()}

        def look(name: str, seen=seen) -> None:
            seen[name].add((requested_backend(), torch.is_grad_enabled()))

        runs = {name: partial(look, name) for name in seen}
        take_turns(runs, 2, 0.1, "cpu", partial(kernel_calls.surroundings, mode=mode))
        assert seen == {
            "reference": {("reference", gradients)},
            "torch.compile": {("auto", gradients)},
        }
