"""Stages add up to the time they took, and `--profile` writes its table and trace."""

import json
import re
import resource
import threading
import time

import pytest
from small_runs import GROUPS, train, wait_until

from fastweights.host import profiling
from fastweights.host.profiling import TRACED, WARM_UP
from fastweights.host.stages import STAGES, StageColumns, Stages
from fastweights.records.log_table import read_logs


def test_a_stage_counts_its_seconds_and_its_calls():
    stages = Stages("one")
    for _ in range(3):
        with stages("emulation"):
            time.sleep(0.01)
    with pytest.raises(KeyError), stages("gradient"):
        raise KeyError
    totals = stages.totals()
    assert totals["emulation"].calls == 3 and totals["gradient"].calls == 1
    assert totals["emulation"].seconds >= 0.03
    assert sum(total.calls for total in totals.values()) == 4


def test_a_running_stage_counts_its_time_so_far():
    stages = Stages("one")
    with stages("save"):
        time.sleep(0.01)
        before = stages.totals()["save"]
    assert before.calls == 1 and 0.01 <= before.seconds <= stages.totals()["save"].seconds


def test_columns_hold_what_all_threads_did_since_the_row_before():
    threads = [Stages("one"), Stages("two")]
    columns = StageColumns(threads)
    for thread in threads:
        with thread("inference"):
            time.sleep(0.01)
    assert columns.row()["seconds_inference"] >= 0.02
    assert columns.row() == {f"seconds_{stage}": 0.0 for stage in STAGES}


def test_a_stop_waits_until_an_update_has_its_row():
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    stages, deaf = Stages("one", stop), {"optimise", "publish", "log", "save"}
    for stage in STAGES:
        if stage in deaf:
            with stages(stage):
                pass
        else:
            with pytest.raises(Stop), stages(stage):
                raise AssertionError("entered")


@pytest.fixture
def patient_trace(monkeypatch):
    """Let a trace last until somebody has acted, however few updates it has."""
    start, stop, before = profiling._start, profiling._stop, []

    def emulated(threads):
        return sum(thread.totals()["emulation"].calls for thread in threads)

    def start_counting(threads):
        trace = start(threads)
        before.append(emulated(threads))
        return trace

    def stop_later(trace, threads, path):
        # The first steps may have begun before the trace.
        wait_until(lambda: emulated(threads) > before[0] + 2)
        stop(trace, threads, path)

    monkeypatch.setattr(profiling, "_start", start_counting)
    monkeypatch.setattr(profiling, "_stop", stop_later)


@pytest.mark.parametrize("schedule", [("--schedule", "lockstep"), GROUPS])
@pytest.mark.usefixtures("patient_trace")
def test_profile_leaves_a_table_and_a_trace(schedule, tmp_path, capsys):
    updates = WARM_UP + TRACED + 5
    assert train(tmp_path, "run", *schedule, "--profile", "--total-steps", 20 * updates) == 0
    text = (tmp_path / "run" / "profile.txt").read_text()
    table = text.split("\n\n")[0]
    assert table in capsys.readouterr().out
    # The slowest operators; which they are depends on timing.
    assert len(re.findall(r"^ +aten::\w+ ", text, re.M)) > 5
    acting = ("learner",) if "lockstep" in schedule else ("actor 0", "actor 1")
    for thread in acting:
        assert re.search(rf"^{thread} +emulation +[0-9.]+ +[0-9.]+ % +\d+ +[0-9.]+$", table, re.M)
    # The update and the reading of its losses, after the trace.
    assert re.search(rf"^learner +optimise .* % +{2 * 5} ", table, re.M)
    events = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    assert "aten::mul" in {event["name"] for event in events}
    stages = {e["name"]: e["tid"] for e in events if e.get("cat") == "user_annotation"}
    assert {"emulation", "inference", "gradient", "optimise"} <= set(stages)
    assert (stages["emulation"] == stages["gradient"]) == ("lockstep" in schedule)


def test_a_run_that_ends_within_the_trace_has_what_there_was(tmp_path):
    assert train(tmp_path, "run", "--profile", "--total-steps", 20 * (WARM_UP + 1)) == 0
    events = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    assert events
    assert "no trace" not in (tmp_path / "run" / "profile.txt").read_text()


def test_a_trace_that_cannot_be_written_does_not_end_the_run(tmp_path, capsys, monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    export = profiling._export

    def export_to_a_full_disk(trace, path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            export(trace, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(profiling, "_export", export_to_a_full_disk)
    updates = WARM_UP + TRACED + 2
    assert train(tmp_path, "run", "--profile", "--total-steps", 20 * updates) == 0
    assert "no trace: " in (said := capsys.readouterr().out) and "is the disk full?" in said
    assert "seconds of training" in (tmp_path / "run" / "profile.txt").read_text()
    assert not list((tmp_path / "run").glob("*trace.json*"))


def test_adding_operators_up_ends_where_the_run_is_to_stop():
    asked, go_on = [], threading.Event()

    class Slow:
        def key_averages(self):
            go_on.wait(60)
            return self

        def __iter__(self):
            return iter(())

        def table(self, **how):
            return "too late"

    def check():
        asked.append(None)
        if len(asked) == 3:
            raise KeyError

    with pytest.raises(KeyError):
        profiling._operators(Slow(), check)
    assert profiling._operators(Slow(), patience=0.1) == profiling._NO_OPERATORS
    go_on.set()


def test_a_run_too_short_for_a_trace_says_so(tmp_path):
    assert train(tmp_path, "run", "--profile", "--total-steps", 40) == 0
    assert "no trace" in (tmp_path / "run" / "profile.txt").read_text()
    assert not (tmp_path / "run" / "trace.json").exists()


def test_without_an_update_an_earlier_profile_stays(tmp_path, capsys):
    """A run killed after its last update resumes without one."""
    (tmp_path / "profile.txt").write_text("earlier")
    assert list(profiling.profiled((row for row in ()), (Stages("learner"),), tmp_path)) == []
    assert (tmp_path / "profile.txt").read_text() == "earlier"
    assert "no update was made" in capsys.readouterr().out


def test_the_log_times_every_stage_of_every_update(tmp_path):
    assert train(tmp_path, "run", *GROUPS, "--total-steps", 200) == 0
    logs = read_logs(tmp_path / "run")
    assert {f"seconds_{stage}" for stage in STAGES} <= set(logs)
    assert all(seconds > 0 for seconds in logs["seconds_gradient"])
    stages = ("gradient", "optimise", "publish")
    own = zip(*(logs[f"seconds_{stage}"] for stage in stages), strict=True)
    for seconds, rate in zip(own, logs["agent_steps_per_second"], strict=True):
        assert sum(seconds) <= 20 / rate
