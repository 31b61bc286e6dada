"""The benchmark of a second learner: failures end all learners, and bad input is one line."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks import learners
from fastweights.host.errors import UserError

FAILS, WAITS = "import sys; sys.exit('error: no such game')", "import time; time.sleep(60)"
ENDS = ""


@pytest.mark.parametrize("words", [(FAILS, WAITS), (WAITS, FAILS), (ENDS, FAILS)])
def test_a_learner_that_fails_ends_the_others(words, monkeypatch):
    started = [
        subprocess.Popen([sys.executable, "-c", each], stderr=subprocess.PIPE, text=True)
        for each in words
    ]
    for process, its_words in zip(started, words, strict=True):
        if its_words is ENDS:  # so that it ends before the other fails
            process.wait()
    monkeypatch.setattr(learners.Job, "learners", lambda job, kind: started)
    with pytest.raises(UserError, match="two runs: a run failed: no such game"):
        learners._sample("two runs", "Catch", "rdn", "quick", 1)
    codes = {WAITS: -signal.SIGKILL, FAILS: 1, ENDS: 0}
    assert [each.returncode for each in started] == [codes[each] for each in words]


def test_cores_that_cannot_be_chosen_are_one_line(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 1, 2}, raising=False)
    assert learners.two_cores() == [1, 2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    with pytest.raises(UserError, match="may use one"):
        learners.two_cores()
    monkeypatch.delattr(os, "sched_getaffinity")
    with pytest.raises(UserError, match="needs Linux"):
        learners.two_cores()
