"""Faults around a run cost little: full disks, damaged files, clocks, environments."""

import json
from pathlib import Path

import numpy as np
import pytest
from forks import Program

from fastweights.evaluation.reports.curves import hours
from fastweights.evaluation.reports.runs import open_run
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.checkpoints import CheckpointError, load_checkpoint, save_or_warn
from fastweights.records.log_table import read_logs

pytestmark = pytest.mark.accidents
HERE = Path(__file__).parent
UPDATE = 20  # agent steps
STOPPED = 143  # 128 + SIGTERM


class Happened:
    """The reports and files of `faulty_runs.py`."""

    def __init__(self, folder: Path, *cases: str):
        done = Program(HERE / "faulty_runs.py", folder, *cases).end(300)
        assert done.returncode == 0, done.stderr
        self.folder = folder
        self.cases = {case["case"]: case for case in map(json.loads, done.stdout.splitlines())}

    def errors(self, name: str) -> list[str]:
        """Return the lines on stderr, without those about slow kernels on this machine."""
        said = (self.folder / f"{name}.err").read_text().splitlines()
        return [line for line in said if "no C++ compiler found" not in line]

    def assert_no_step_is_missing_or_twice(self, name: str) -> None:
        logs = read_logs(self.folder / name)
        count = len(logs["step"])
        assert logs["step"] == [UPDATE * (tick + 1) for tick in range(count)]
        assert logs["updates"] == [tick + 1 for tick in range(count)]
        assert logs["_tick"] == list(range(count))


@pytest.fixture(scope="module")
def happened(tmp_path_factory) -> Happened:
    folder = tmp_path_factory.mktemp("runs")
    return Happened(folder, "start", "full", "lockstep", "asynchronous")


@pytest.fixture(scope="module")
def happened_too(tmp_path_factory) -> Happened:
    return Happened(tmp_path_factory.mktemp("runs"), "log", "clock", "shared")


def test_a_disk_that_is_full_from_the_start_is_one_line_before_anything_is_learned(happened):
    case = happened.cases["start"]
    assert case["codes"] == [0, 2, 2]
    assert case["left"] == ["before", "latest"] and case["latest"] == "before"
    for name in ("never", "never-named"):
        (line,) = happened.errors(name)
        assert line.startswith("error: cannot write checkpoint ")
        assert "step_000000000000.pt: File too large; the run has no other checkpoint; " in line
        assert line.endswith("raise the file-size limit (ulimit -f), or write to another disk")
        assert not (happened.folder / f"{name}.out").read_text()


def test_a_full_disk_costs_a_warning_for_a_checkpoint_and_the_exit_code_for_the_last(happened):
    case, said = happened.cases["full"], happened.errors("full")
    kept, still_kept = case["kept"]
    assert kept == still_kept, "training must go on and keep earlier checkpoints"
    assert case["code"] == 2 and case["partials"] == 0
    assert all(line.startswith("warning: cannot write checkpoint") for line in said[:-1])
    assert said[-1].startswith("error: cannot write checkpoint") and "File too large" in said[-1]
    assert (
        f"; the checkpoint of step {case['left'][-1]:,} is intact, and --resume will use it; "
        in (said[-1])
    )
    assert case["left"][-1] > still_kept[-1], (
        "checkpoints must be written once there is space again"
    )


def test_a_truncated_newest_checkpoint_is_passed_over_and_said_so(happened):
    case, (warning,) = happened.cases["full"], happened.errors("full-again")
    before, damaged = (f"step_{step:012d}.pt" for step in case["left"][-2:])
    assert damaged in warning and "truncated" in warning
    assert "continuing from" in warning and warning.endswith(before)
    assert case["resumed"] == STOPPED
    happened.assert_no_step_is_missing_or_twice("full")
    assert CheckpointFolder(happened.folder / "full").latest().warnings == ()


@pytest.mark.parametrize("schedule", ["lockstep", "asynchronous"])
def test_what_was_learned_before_an_environment_raised_is_saved(schedule, happened):
    case, said = happened.cases[schedule], happened.errors(schedule)
    assert case["code"] == 1
    assert f"saved at {UPDATE * case['rows']:,} agent steps; --resume continues from there" in said
    assert "Traceback (most recent call last):" in said
    assert said[-1] == "RuntimeError: the emulator burst"
    assert case["resumed"] == 0 and not happened.errors(f"{schedule}-again")
    happened.assert_no_step_is_missing_or_twice(schedule)
    assert read_logs(happened.folder / schedule)["step"][-1] == 400


@pytest.mark.faults
def test_a_log_that_meets_a_full_disk_ends_the_run_with_one_line(happened_too):
    case, said = happened_too.cases["log"], happened_too.errors("log")
    assert case["code"] == 2 and case["resumed"] == STOPPED
    assert said[-1].startswith("error: cannot write") and "logs.csv: File too large" in said[-1]
    assert all(line.startswith("warning: ") for line in said[:-1])
    happened_too.assert_no_step_is_missing_or_twice("log")


@pytest.mark.faults
def test_a_clock_that_jumps_changes_nothing_but_the_log_s_time(happened_too):
    case, path = happened_too.cases["clock"], happened_too.folder / "clock"
    assert (case["code"], case["resumed"]) == (STOPPED, STOPPED)
    happened_too.assert_no_step_is_missing_or_twice("clock")
    logs, jumps = read_logs(path), np.diff(read_logs(path)["_time"])
    assert (jumps < -3500).sum() >= 2 and (jumps > 86000).sum() == 1, "the clock must jump"
    assert min(logs["agent_steps_per_second"]) > 0 and min(logs["seconds_gradient"]) >= 0
    since = hours(open_run(path))
    assert (np.diff(since) >= 0).all() and since[-1] < 0.1
    assert load_checkpoint(path / "model.tar")["step"] == logs["step"][-1]


@pytest.mark.faults
def test_a_second_run_on_a_folder_refuses_and_the_first_goes_on(happened_too):
    case = happened_too.cases["shared"]
    assert case["codes"] == [2, 2] and case["first"] == STOPPED and case["untouched"]
    for name, reason in (
        ("shared-new", "already holds a run: continue it with --resume"),
        ("shared-resumed", "is being written by process"),
    ):
        (line,) = happened_too.errors(name)
        assert line.startswith("error: ") and reason in line
    assert not happened_too.errors("shared")
    happened_too.assert_no_step_is_missing_or_twice("shared")


@pytest.mark.faults
def test_a_run_that_is_stopped_for_a_minute_goes_on(tmp_path):
    happened = Happened(tmp_path, "stopped")
    case = happened.cases["stopped"]
    assert case["codes"] == [STOPPED, STOPPED] and case["before"] == case["after"]
    for name in ("stopped-lockstep", "stopped-asynchronous"):
        assert not happened.errors(name)
        happened.assert_no_step_is_missing_or_twice(name)
        assert np.diff(read_logs(tmp_path / name)["_time"]).max() > 60
        assert (
            load_checkpoint(tmp_path / name / "model.tar")["step"]
            == read_logs(tmp_path / name)["step"][-1]
        )


def test_only_a_checkpoint_that_cannot_be_written_is_forgiven(capsys):
    def refuse():
        raise CheckpointError("cannot write x")

    def fail():
        raise RuntimeError("a bug")

    save_or_warn(refuse)
    assert capsys.readouterr().err == "warning: cannot write x; training continues\n"
    with pytest.raises(RuntimeError):
        save_or_warn(fail)
