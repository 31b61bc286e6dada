"""The description of the machine: usable cores, and the load before the measurements."""

import os

import pytest

from benchmarks import builds, soak, stems
from benchmarks.machine import describe
from fastweights import host


def test_cores_are_those_that_may_be_used(monkeypatch):
    monkeypatch.delenv("FASTWEIGHTS_CPUS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(1000), raising=False)
    assert describe()["cores"] == 1000


def test_the_processor_is_the_one_that_runs_record():
    assert describe()["processor"] == host.machine()["processor"]


class Begun(Exception):
    """Raised where a benchmark would begin to measure."""


@pytest.mark.parametrize(
    ("command", "work"),
    [
        pytest.param(builds, "measure", marks=pytest.mark.compiler),
        (soak, "soak"),
        (stems, "frames_of"),
    ],
)
def test_the_load_is_that_before_the_run(command, work, monkeypatch):
    described = []

    def begin(*how):
        raise Begun

    monkeypatch.setattr(command, "describe", lambda: described.append(True))
    monkeypatch.setattr(command, work, begin)
    with pytest.raises(Begun):
        command.main([])
    assert described
