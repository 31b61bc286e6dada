"""The soak test: it notices each kind of defect, and a short one finds none."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.soak import UPDATE, Findings, _keep_going, _look, _recover, main, soak
from benchmarks.soak_run import FAULTS, Reading, SoakRun
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.log_table import LogTable
from fastweights.records.run_folder import RunFolder


@pytest.fixture
def run(tmp_path) -> SoakRun:
    """Return a run with three logged updates and a checkpoint of the last, without processes."""
    run = SoakRun(tmp_path, "Catch", 1, "local")
    folder = RunFolder.create(tmp_path, run.folder.name, {})
    for update in (1, 2, 3):
        folder.log({"step": update * UPDATE})
    folder.finish()
    CheckpointFolder(run.folder).save({"weights": torch.ones(3)}, 3 * UPDATE)
    return run


def complaints(run: SoakRun) -> list[str]:
    found = Findings()
    _look(run, found)
    return found.complaints


def test_a_whole_run_gives_no_reason_to_complain(run):
    assert complaints(run) == []


def test_a_step_that_is_missing_is_noticed(run):
    LogTable(run.folder).log({"step": 5 * UPDATE})
    assert complaints(run)[0] == "the log does not contain every step exactly once"


def test_a_step_that_counts_twice_is_noticed(run):
    LogTable(run.folder).log({"step": 3 * UPDATE})
    assert complaints(run) == ["the log does not contain every step exactly once"]


def test_a_lost_checkpoint_is_noticed(run):
    for path in [run.folder / "model.tar", *run.checkpoints()]:
        path.unlink()
    assert complaints(run) == [f"the last checkpoint is at step None, the log at {3 * UPDATE}"]


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="needs Linux: finds processes in /proc"
)


@needs_proc
def test_a_process_left_behind_is_noticed(run):
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(sleeper, start_new_session=True)
    run._groups.append(process.pid)
    assert complaints(run) == [f"1 processes outlived the run: [{process.pid}]"]
    process.kill()
    process.wait()
    assert complaints(run) == []


def wait_until_ready(run: SoakRun) -> None:
    """Wait for the word "ready": while a program starts, a process has no environment to read."""
    deadline = time.monotonic() + 20
    while "ready" not in run._said():
        assert time.monotonic() < deadline


IN_ANOTHER_SESSION = """
import subprocess, sys
program = "import time; print('ready', flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", program], start_new_session=True).wait()
"""


@needs_proc
def test_processes_in_other_sessions_belong_to_a_run_and_spectators_do_not(run):
    """torchrun starts learners in other sessions; a program that reads the log is no part of it."""
    run._command = [sys.executable, "-c", IN_ANOTHER_SESSION]
    spectator = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", run.folder])
    try:
        run.start()
        wait_until_ready(run)
        both = sorted(run.processes())
        assert len(both) == 2
        assert sorted(run.left_behind()) == both
        assert run.kill_left_behind() == both and spectator.poll() is None
    finally:
        spectator.kill()
        spectator.wait()


LEAVES_ONE_UNBURIED = """
import subprocess, time
kept = subprocess.Popen("true")  # or Python would bury it
time.sleep(60)
"""


LEAVES_ONE_RUNNING = """
import subprocess, time
kept = subprocess.Popen(["sleep", "60"])
time.sleep(60)
"""


@needs_proc
def test_a_process_that_has_ended_has_no_memory_to_compare(run):
    run._command = [sys.executable, "-c", LEAVES_ONE_UNBURIED]
    run.start()
    deadline = time.monotonic() + 20
    while not (ended := [one for one in run.processes()[1:] if _is_unburied(one)]):
        assert time.monotonic() < deadline
    run.sample()
    assert not set(ended) & set(run._readings)
    run.signal_all(signal.SIGKILL)


def _is_unburied(process: int) -> bool:
    return _state(process) == "Z"


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


STUBBORN = """
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
kept = subprocess.Popen(["sleep", "60"])
print("ready", flush=True)
time.sleep(60)
"""


def start_stubborn(run: SoakRun) -> None:
    """Start two processes that ignore interrupts, and stop the second."""
    run._command = [sys.executable, "-c", STUBBORN]
    run.start()
    wait_until_ready(run)
    os.kill(run.processes()[1], signal.SIGSTOP)


@needs_proc
def test_an_interrupted_soak_leaves_nothing_running(monkeypatch, capsys):
    runs = []

    def interrupted(run, *how):
        runs.append(run)
        start_stubborn(run)
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.soak.soak", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main([])
    (run,) = runs
    assert run.left_behind() == [] and not run.is_alive()


@needs_proc
def test_a_run_that_an_interrupt_does_not_end_is_killed_and_complained_about(run, monkeypatch):
    monkeypatch.setattr("benchmarks.soak.RECOVERY", 0.0)
    monkeypatch.setattr(SoakRun.end, "__defaults__", (0.1,))
    start_stubborn(run)
    started = run.processes()
    found = soak(run, 0.0, [], 1.0, random.Random(1))
    assert f"an interrupt did not end the run; killed {sorted(started)}" in found.complaints
    assert run.left_behind() == [] and not run.is_alive()


def test_a_victim_that_has_just_ended_is_no_error(run, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(run, "processes", lambda: [ended.pid])
    assert FAULTS["kill"](run, random.Random(1))


@needs_proc
def test_an_interrupted_stop_leaves_nothing_stopped(run, monkeypatch):
    run._command = [sys.executable, "-c", "import time; time.sleep(60)"]
    run.start()

    def interrupt(seconds):
        deadline = time.monotonic() + 20
        while _state(run._process.pid) != "T":
            assert time.monotonic() < deadline
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            FAULTS["stop"](run, random.Random(1))
    assert _state(run._process.pid) != "T"
    run.kill_left_behind()


def test_a_run_without_progress_is_noticed(run, monkeypatch):
    monkeypatch.setattr("benchmarks.soak.RECOVERY", 1.0)
    run._command = [sys.executable, "-c", "import time; time.sleep(60)"]
    found = Findings()
    _recover(run, found)
    run.signal_all(signal.SIGKILL)
    assert found.complaints == [f"the run did not pass step {3 * UPDATE} within 1 s without faults"]


def test_restarts_that_are_not_the_command_s_are_counted(run):
    RunFolder.open(run.folder).close()
    again = RunFolder.open(run.folder)
    # From the fourth on, a second start that counts from 0.
    for update, restarts in enumerate((0, 2, 3, 0, 1), 4):
        again.log({"step": update * UPDATE, "actor_restarts": restarts})
    again.finish()
    found = Findings()
    _look(run, found)
    assert (found.resumes, found.actor_restarts) == (2, 4)


RAISES = "def f(): raise RuntimeError('broken')\nf()"
PRINTS = "import time, traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()"
STOPS = "raise KeyboardInterrupt"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (RAISES, ["start 1 ended with 1: RuntimeError: broken"]),
        (PRINTS, ["start 1 printed ZeroDivisionError: division by zero"]),
        (STOPS, []),
    ],
)
def test_a_traceback_of_a_lone_run_is_noticed(code, says, run):
    run._command = [sys.executable, "-c", code]
    run.start()
    run._process.wait()
    found = Findings()
    _keep_going(run, found)
    assert found.complaints == says


REFUSES = "import sys; print('error: no such stem'); print('bye'); sys.exit(2)"


def test_a_run_that_is_refused_ends_the_soak_with_the_reason(tmp_path):
    run = SoakRun(tmp_path, "Catch", 1, "local")
    run._command = [sys.executable, "-c", REFUSES]
    found = soak(run, 1.0, ["full"], 60.0, random.Random(1))
    assert found.complaints == ["start 1 ended with 2: error: no such stem", "no step was logged"]


def test_a_fault_may_explain_a_refusal(run):
    run._command = [sys.executable, "-c", REFUSES]
    run.start()
    run._process.wait()
    found = Findings(faults={"full": 1})
    assert _keep_going(run, found) and not found.complaints
    run.signal_all(signal.SIGKILL)


def test_tracebacks_that_two_processes_print_at_once_are_told_apart(run):
    header, where = "Traceback (most recent call last):\n", '  File "a.py", line 1\n'
    run._out.write_text(header + header + where + where + "RuntimeError: broken\n")
    assert run.tracebacks() == ["RuntimeError: broken"]
    # A second interrupt, torchrun's own, that comes while two processes end.
    ignored = "Exception ignored in atexit callback: <bound method>\n"
    run._out.write_text((ignored + header + where) * 2 + "KeyboardInterrupt: \n" * 2)
    assert run.tracebacks() == []
    run._out.write_text(ignored + header + where + "RuntimeError: at exit\n")
    assert run.tracebacks() == ["RuntimeError: at exit"]


def test_torchrun_may_end_with_1(tmp_path):
    ended = {}
    for learners, engine in ((1, "local"), (2, "local"), (1, "ray")):
        run = SoakRun(tmp_path, "Catch", learners, engine)
        run._command = [sys.executable, "-c", "raise SystemExit(1)"]
        run.start()
        run._process.wait()
        ended[learners, engine] = run.ended_badly(faults=0)
    assert ended == {(1, "local"): True, (2, "local"): False, (1, "ray"): False}


@pytest.mark.faults
@pytest.mark.parametrize("learners", [1, 2])
def test_a_minute_of_every_fault_leaves_the_run_whole(learners, capsys):
    options = ["--minutes", "1.2", "--pause", "8", "--seed", "3", "--learners", str(learners)]
    assert main(options) == 0, capsys.readouterr().out
    assert "complaints" in capsys.readouterr().out


def test_a_missing_folder_is_an_error_before_anything_runs(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--json", str(tmp_path / "none" / "soak.json")])
    assert ": no folder " in capsys.readouterr().err


def readings(*memory: int) -> list[Reading]:
    """Return readings every ten seconds, each with one more open file."""
    return [Reading(10.0 * i, pages, i) for i, pages in enumerate(memory)]


def test_growth_is_that_of_the_worst_process_from_when_it_was_warm(run):
    assert run.growth() is None
    # Not yet twice as old as at the end of the warm-up.
    run._readings = {1: readings(10, 50, 100, 100, 100, 100)}
    assert run.growth() is None
    run._readings[2] = readings(10, 50, 100, 100, 100, 120, 150)
    assert run.growth() == (1.5, 3)
    run._readings[3] = readings(10, 50, 100, 200, 200, 200, 200)
    assert run.growth() == (1.5, 3)


def test_a_run_that_grows_is_complained_about(run):
    run._readings = {1: readings(*[100] * 4, *[100] * 10, 200)}
    assert complaints(run) == [
        "memory grew to 2.00 times its size after warm-up",
        "a process has 11 more open files than after its warm-up",
    ]


def sleeps(process: int) -> bool:
    """Return whether the process runs `sleep`; a fork that has not started it does not count."""
    return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"sleep")


@needs_proc
def test_a_sample_reads_the_run_and_its_children(run):
    run._command = [sys.executable, "-c", LEAVES_ONE_RUNNING]
    run.start()
    deadline = time.monotonic() + 20
    while not any(map(sleeps, run.processes())):
        assert time.monotonic() < deadline
    run.sample()
    assert set(run._readings) == set(run.processes())
    assert all(one.memory > 0 and one.files > 0 for (one,) in run._readings.values())
    run.signal_all(signal.SIGKILL)


@pytest.mark.parametrize(("wrong", "code"), [([], 0), (["something"], 1)])
def test_a_complaint_is_the_exit_code(wrong, code, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.soak.soak", lambda *asked: Findings(complaints=wrong))
    assert main([]) == code
    assert (wrong or ["none"])[0] in capsys.readouterr().out
