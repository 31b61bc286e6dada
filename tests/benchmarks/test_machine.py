"""The description of the machine: usable cores, and the load before the measurements."""

import os
from pathlib import Path

import pytest

from benchmarks import builds, fresh_memories, kernels_before, soak, stems
from benchmarks.machine import describe
from fastweights import host
from fastweights.kernels.machinery import cpu_build

ROOT = Path(__file__).parents[2]


def test_cores_are_those_that_may_be_used(monkeypatch):
    monkeypatch.delenv("FASTWEIGHTS_CPUS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(1000), raising=False)
    assert describe()["cores"] == 1000


def test_the_processor_is_the_one_that_runs_record():
    assert describe()["processor"] == host.machine()["processor"]


@pytest.fixture
def no_compiler(tmp_path, monkeypatch) -> str:
    """Let the C++ compiler be a program that fails and prints nothing; return its path."""
    path = tmp_path / "mute"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    monkeypatch.setattr(cpu_build, "compiler", lambda: str(path))
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    cpu_build.library.cache_clear()
    return str(path)


def test_a_compiler_without_a_version_is_described(no_compiler):
    assert describe()["compiler"] == f"{no_compiler}, version unknown"


@pytest.mark.parametrize(
    ("command", "arguments"), [(builds, []), (kernels_before, ["--before", str(ROOT)])]
)
def test_a_kernel_that_cannot_be_built_is_one_line(
    command, arguments, no_compiler, monkeypatch, capsys
):
    # It would change the whole process.
    monkeypatch.setattr(kernels_before, "tune_allocator", lambda: None)
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "error: mute failed on cpu.cpp: exit status 1"


class Begun(Exception):
    """Raised where a benchmark would begin to measure."""


@pytest.mark.parametrize(
    ("command", "work"),
    [
        pytest.param(builds, "measure", marks=pytest.mark.compiler),
        (fresh_memories, "medians"),
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
