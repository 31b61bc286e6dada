"""The benchmark of a second learner: failures end all learners, and bad input is one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import learners
from fastweights.host.errors import UserError

FAILS, WAITS = "import sys; sys.exit('error: no such game')", "import time; time.sleep(60)"
ENDS = ""


def start(program: str, errors: Path) -> learners.Learner:
    with errors.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", program], stderr=stderr)
    return learners.Learner(process, errors)


@pytest.mark.parametrize("words", [(FAILS, WAITS), (WAITS, FAILS), (ENDS, FAILS)])
def test_a_learner_that_fails_ends_the_others(words, tmp_path, monkeypatch):
    started = [start(each, tmp_path / str(index)) for index, each in enumerate(words)]
    for learner, its_words in zip(started, words, strict=True):
        if its_words is ENDS:  # so that it ends before the other fails
            learner.process.wait()
    monkeypatch.setattr(learners.Job, "learners", lambda job, kind: started)
    with pytest.raises(UserError, match="two runs: a run failed: no such game"):
        learners._sample("two runs", "Catch", "rdn", "quick", 1)
    codes = {WAITS: -signal.SIGKILL, FAILS: 1, ENDS: 0}
    assert [each.process.returncode for each in started] == [codes[each] for each in words]


def test_a_learner_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    started = [start(WAITS, tmp_path / "errors.txt")]
    monkeypatch.setattr(learners.Job, "learners", lambda job, kind: started)
    monkeypatch.setattr(learners, "SLOWEST", 0.1)
    with pytest.raises(UserError, match="alone: a run did not end within 0 seconds"):
        learners._sample("alone", "Catch", "rdn", "quick", 1)
    assert started[0].process.returncode == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="pins processes to cores")
def test_a_learner_with_many_warnings_does_not_wait_for_a_reader(tmp_path, monkeypatch):
    script = tmp_path / "launch" / "atari.py"
    script.parent.mkdir()
    script.write_text(
        "import sys\nsys.stderr.write('warning\\n' * 100_000)\nsys.exit('error: full')"
    )
    monkeypatch.setattr(learners, "ROOT", tmp_path)
    core = min(os.sched_getaffinity(0))
    learner = learners.Job("Catch", "rdn", "quick", 1, tmp_path).start("run", {core}, share=1)
    with pytest.raises(UserError, match="alone: a run failed: full"):
        learners._wait("alone", [learner], 60.0)


def test_cores_that_cannot_be_chosen_are_one_line(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 1, 2}, raising=False)
    assert learners.two_cores() == [1, 2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    with pytest.raises(UserError, match="may use one"):
        learners.two_cores()
    monkeypatch.delattr(os, "sched_getaffinity")
    with pytest.raises(UserError, match="needs Linux"):
        learners.two_cores()
