"""Compilers that fail, that a signal ends, that have no OpenMP, or that are no program."""

import logging

import pytest

from fastweights.kernels.machinery import cpu_build, dispatch

SOURCE = cpu_build.KERNELS / "delta_rule" / "cpu.cpp"


@pytest.fixture
def new_process():
    """Return a function that makes this process look for compilers and builds again."""

    def begin() -> None:
        for found in (cpu_build.library, cpu_build.why_no_openmp, dispatch.say_once):
            found.cache_clear()

    begin()
    yield begin
    begin()


@pytest.mark.compiler
def test_a_compiler_that_fails_is_run_once(new_process, tmp_path, monkeypatch):
    """The choice of a backend asks for the kernel again at every new shape."""
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    commands: list[str] = []
    run = cpu_build._run

    def fail(command: list[str]) -> str:
        if "probe.cpp" in " ".join(command):
            return run(command)
        commands.append(command)
        return "an error"

    monkeypatch.setattr(cpu_build, "_run", fail)
    for _ in range(3):
        with pytest.raises(cpu_build.BuildError, match=r"failed on cpu\.cpp: an error"):
            cpu_build.library(SOURCE, "float", (8, 8))
        assert len(commands) == 2  # one for each function, never without OpenMP


def without_openmp(command: list[str], run=cpu_build._run) -> str:
    return "no libgomp" if "-fopenmp" in command else run(command)


@pytest.mark.compiler
def test_a_build_without_openmp_is_said_once_in_each_process(
    new_process, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    monkeypatch.setattr(cpu_build, "_run", without_openmp)
    for _ in range(2):
        new_process()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "fastweights"):
            for lanes in (8, 16):
                assert cpu_build.library(SOURCE, "float", (lanes, lanes)).forward
        assert [record.message for record in caplog.records] == [
            "C++ kernels run on one thread: no build with -fopenmp: no libgomp"
        ]
        assert len([*tmp_path.glob("*.so")]) == 4


@pytest.mark.compiler
def test_once_openmp_is_there_kernels_are_built_with_it(new_process, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(cpu_build, "_run", without_openmp)
        cpu_build.library(SOURCE, "float", (8, 8))
    new_process()
    caplog.clear()
    assert cpu_build.library(SOURCE, "float", (8, 8)).forward
    assert not caplog.records
    built = [path.read_bytes() for path in tmp_path.glob("*.so")]
    calls = b"GOMP_parallel", b"__kmpc_fork_call"  # of GCC and clang
    assert [any(call in code for call in calls) for code in built].count(True) == 2
    assert len(built) == 4


def test_a_compiler_that_a_signal_ended_is_asked_again(new_process, tmp_path, monkeypatch):
    """Ctrl-C reaches the compiler, too. This does not mean that it has no OpenMP."""
    program, log, cache = tmp_path / "c++", tmp_path / "log", tmp_path / "cache"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit\n'
        f'case "$*" in *$ENDED*) echo "$*" >> {log}; kill -KILL $$; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(cache))
    cpu_build.compiler.cache_clear()
    for ended in ("probe.cpp", "cpu.cpp"):
        monkeypatch.setenv("ENDED", ended)
        for times in (1, 2):
            new_process()
            with pytest.raises(cpu_build.BuildError, match="signal 9 ended the compiler"):
                cpu_build.shared_object(SOURCE, "float", (8, 8))
            commands = log.read_text().splitlines()
            assert len(commands) == times and all("-fopenmp" in line for line in commands)
        log.unlink()
        assert not [*cache.glob("*.so")]
    cpu_build.compiler.cache_clear()


def test_options_in_cxx_are_refused_by_name(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -O2")
    cpu_build.compiler.cache_clear()
    with pytest.raises(
        cpu_build.BuildError, match=r"\$CXX, which must be one program .*: g\+\+ -O2"
    ):
        cpu_build.compiler()
    cpu_build.compiler.cache_clear()
