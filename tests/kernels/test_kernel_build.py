"""Building kernels on first use: parallel processes, no compiler, imports, the cache."""

import logging
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forks import Program
from remembered import forget_calls

from fastweights.agents.stem import build_stem
from fastweights.kernels.__main__ import describe_machine
from fastweights.kernels.cuda import compiler
from fastweights.kernels.machinery import cpu_build, direct_call, dispatch
from fastweights.kernels.machinery.cache import cache_folder, private_cache_folder
from fastweights.kernels.machinery.dispatch import backend
from fastweights.kernels.machinery.example import make
from fastweights.kernels.registry import OPERATIONS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "kernels" / "delta_rule" / "cpu.cpp"
BUILD = f"""
from pathlib import Path
from fastweights.kernels.machinery import cpu_build
assert cpu_build.library(Path({str(SOURCE)!r}), "float", (8, 8)).forward
"""
OPENMP = """
print(*{line.split()[-1] for line in open("/proc/self/maps") if "omp" in line.split("/")[-1]})
"""
GOMP = Path(torch.__file__).parent / "lib" / "libgomp.so.1"


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.compiler
def test_processes_that_start_together_do_not_collide(tmp_path):
    running = [Program(BUILD, environment={"FASTWEIGHTS_CACHE": str(tmp_path)}) for _ in range(2)]
    for process in running:
        done = process.end()
        assert done.returncode == 0, done.stderr
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [*[".lock"] * 2, *[".so"] * 2]


@pytest.mark.compiler
@pytest.mark.skipif(not GOMP.exists(), reason="needs torch with GCC's OpenMP")
def test_kernels_and_torch_share_one_openmp():
    """Two OpenMP libraries would each have threads and read the OMP_* variables."""
    done = Program(BUILD + OPENMP).end()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(GOMP.resolve())]


def test_without_a_compiler_one_line_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    case = make(OPERATIONS["delta_rule"], {"T": 9, "B": 2, "H": 1, "K": 3, "V": 3})
    forget()
    with caplog.at_level(logging.WARNING, "fastweights"):
        found = case.run()
        case.run()
    forget()
    assert [record.message for record in caplog.records] == [
        "delta_rule runs on the slower chunked backend: "
        "no C++ compiler found (looked for c++, g++, clang++)"
    ]
    with backend("reference"):
        torch.testing.assert_close(found, case.run())


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("garbage", "cannot run the C\\+\\+ compiler .*: Exec format error"),
        (
            "#!/bin/sh\nprintf '\\351t\\351: error\\n' >&2; exit 1",
            "failed on cpu.cpp: \N{REPLACEMENT CHARACTER}t",
        ),
    ],
)
def test_a_compiler_that_is_none_is_a_line(program, says, tmp_path, monkeypatch, caplog):
    (tmp_path / "c++").write_text(program)
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    case = make(OPERATIONS["delta_rule"], {"T": 9, "B": 2, "H": 1, "K": 3, "V": 3})
    forget()
    with caplog.at_level(logging.WARNING, "fastweights"):
        case.run()
    machine = " ".join(describe_machine())
    forget()
    assert re.search(f"runs on the slower chunked backend: .*{says}", caplog.text)
    assert ("none: cannot run the C++ compiler" in machine) == (program == "garbage")


def test_a_compiler_that_tells_no_version_is_described(tmp_path, monkeypatch):
    (tmp_path / "c++").write_text("#!/bin/sh\n")
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    assert f"compiler   {tmp_path}/c++ (version unknown)" in describe_machine()


def test_the_cache_s_variable_may_begin_with_the_home(monkeypatch):
    """Where no shell reads it, as in a container's settings, nothing else replaces it."""
    monkeypatch.setenv("FASTWEIGHTS_CACHE", "~/kernels")
    assert cache_folder() == Path.home() / "kernels"


def forget() -> None:
    """Forget everything that a process looks up once."""
    of_build = cpu_build.compiler, cpu_build.library, cpu_build.why_no_openmp
    for found in (*of_build, dispatch.say_once, direct_call.why_not):
        found.cache_clear()
    forget_calls()


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch, caplog):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("FASTWEIGHTS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(OSError, match="no home folder: set FASTWEIGHTS_CACHE"):
        cache_folder()
    case = make(OPERATIONS["delta_rule"], {"T": 9, "B": 2, "H": 1, "K": 3, "V": 3})
    forget()
    with caplog.at_level(logging.WARNING, "fastweights"):
        case.run()
    forget()
    assert "no home folder: set FASTWEIGHTS_CACHE" in caplog.text


def test_the_cache_folder_is_a_full_path(monkeypatch, tmp_path):
    """A library is loaded from its path only if that has a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTWEIGHTS_CACHE", ".")
    assert cache_folder() == tmp_path
    monkeypatch.setenv("FASTWEIGHTS_CACHE", "~no_such_user_7/a")
    with pytest.raises(OSError, match="FASTWEIGHTS_CACHE=~no_such_user_7/a: no such home folder"):
        cache_folder()


def test_the_stem_runs_without_a_compiler_and_looks_for_it_once(monkeypatch, caplog):
    torch.manual_seed(0)
    stem, frame = build_stem("resnet", (4, 20, 20)), torch.zeros(2, 4, 20, 20, dtype=torch.uint8)
    with backend("reference"):
        expected = stem(frame)
    looked, look = [], cpu_build.shutil.which
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(cpu_build.shutil, "which", lambda name: looked.append(name) or look(name))
    forget()
    with caplog.at_level(logging.WARNING, "fastweights"):
        torch.testing.assert_close(stem(frame), expected)
        assert looked
        looked.clear()
        torch.testing.assert_close(stem(frame), expected)
    forget()
    assert not looked
    for name in ("convolve_pool", "max_pool", "residual_unit"):
        assert f"{name} runs on PyTorch's own kernels: no C++ compiler found" in caplog.text


IMPORT = """
import sys, torch

before = set(sys.modules)  # torch itself may load a part of NVIDIA's package `cuda`
import cores, fastweights.kernels.registry

assert "cuda" in fastweights.kernels.registry.OPERATIONS["delta_rule"].backends
assert not torch.cuda.is_initialized()
assert "torch._dynamo" not in sys.modules
assert not [name for name in set(sys.modules) - before if name.split(".")[0] == "cuda"]
"""


def test_importing_builds_nothing_and_starts_no_gpu(tmp_path):
    process = start(IMPORT, FASTWEIGHTS_CACHE=str(tmp_path / "cache"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert not (tmp_path / "cache").exists()


def test_a_new_cache_is_its_user_s_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "a" / "cache"))
    mask = os.umask(0)
    try:
        folder = private_cache_folder()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_cache_folder() == folder


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """Return a cache that holds a kernel."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTWEIGHTS_CACHE", str(folder))
        cpu_build.library.cache_clear()
        cpu_build.library(SOURCE, "float", (8, 8))
        cpu_build.library.cache_clear()
    return folder


@pytest.mark.compiler
def test_other_users_can_load_what_was_built(filled):
    built = [*filled.glob("*.so")]
    assert len(built) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in built} == {0o755}


@pytest.mark.compiler
def test_a_damaged_file_is_built_again(filled, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(filled, tmp_path / "cache")
    for built in (tmp_path / "cache").glob("*.so"):
        built.write_bytes(b"half a file")
    cpu_build.library.cache_clear()
    assert cpu_build.library(SOURCE, "float", (8, 8)).forward
    cpu_build.library.cache_clear()


@pytest.mark.compiler
@pytest.mark.parametrize("moment", ["_opened", "turn"])
def test_what_another_process_has_rebuilt_is_kept(moment, filled, tmp_path, monkeypatch):
    """It does so after this process has found the damage, or while this one waits for the lock."""
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(filled, tmp_path / "cache")
    for built in (tmp_path / "cache").glob("*.so"):
        built.write_bytes(b"half a file")
    original, rebuilt = getattr(cpu_build, moment), {}

    def rebuild(built: Path) -> None:
        if built not in rebuilt:
            shutil.copy(filled / built.name, tmp_path / built.name)
            (tmp_path / built.name).replace(built)
            rebuilt[built] = built.stat().st_ino

    def watched(built: Path):
        if moment == "turn":
            rebuild(built)
        try:
            return original(built)
        except OSError:
            rebuild(built)
            raise

    monkeypatch.setattr(cpu_build, moment, watched)
    cpu_build.library.cache_clear()
    assert cpu_build.library(SOURCE, "float", (8, 8)).forward
    cpu_build.library.cache_clear()
    assert rebuilt == {path: path.stat().st_ino for path in (tmp_path / "cache").glob("*.so")}
    assert len(rebuilt) == 2


@pytest.mark.compiler
@pytest.mark.parametrize("kept", [63, 64, 2_000, 12_000, -1])
def test_a_file_that_a_full_disk_cut_short_is_built_again(kept, filled, tmp_path):
    """Linux maps it without complaint, and reading beyond its end kills the process."""
    shutil.copytree(filled, tmp_path / "cache")
    whole = {}
    for built in (tmp_path / "cache").glob("*.so"):
        whole[built] = built.read_bytes()
        built.write_bytes(whole[built][:kept])
    done = Program(BUILD, environment={"FASTWEIGHTS_CACHE": str(tmp_path / "cache")}).end()
    assert done.returncode == 0, done.stderr
    assert whole == {built: built.read_bytes() for built in whole}


@pytest.mark.compiler
def test_a_file_that_cannot_be_loaded_is_built_again_only_once(filled, tmp_path, monkeypatch):
    """Some file systems forbid running the files on them."""
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(filled, tmp_path / "cache")
    builds: list[Path] = []

    def build(source: Path, flags: list[str], built: Path) -> None:
        builds.append(built)
        built.write_bytes(b"no library")

    monkeypatch.setattr(cpu_build, "_build", build)
    files = sorted((tmp_path / "cache").glob("*.so"))
    for file in files:
        file.write_bytes(b"half a file")
    cpu_build.library.cache_clear()
    for _ in range(2):
        with pytest.raises(cpu_build.BuildError, match="cannot load the kernel"):
            cpu_build.library(SOURCE, "float", (8, 8))
    cpu_build.library.cache_clear()
    assert sorted(builds) == files


@pytest.mark.compiler
@pytest.mark.parametrize("mode", [0o777, 0o720, "another user's"])
def test_a_cache_that_others_may_have_filled_is_not_loaded(mode, filled, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(filled, tmp_path / "cache")
    if isinstance(mode, str):
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        os.chown(tmp_path / "cache", os.geteuid() or 54321, -1)
        says = "belongs to another user: set FASTWEIGHTS_CACHE"
    else:
        (tmp_path / "cache").chmod(mode)
        says = "others can write to"
    with pytest.raises(cpu_build.BuildError, match=says) as caught:
        cpu_build.library(SOURCE, "float", (8, 8))
    assert "\n" not in str(caught.value)
    with pytest.warns(UserWarning, match=says):
        assert compiler_cache_is_left_alone()


def compiler_cache_is_left_alone() -> bool:
    """Check that the GPU's machine code in the same folder is neither read nor stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "cubin_name", lambda *_: "planted.cubin")
        patch.setattr(compiler, "compile_source", lambda *_: (b"ours", ""))
        planted = cache_folder() / "planted.cubin"
        planted.write_bytes(b"theirs")
        return (
            compiler.cubin(Path("op", "cuda.cu"), 16, "sm_90") == b"ours"
            and planted.read_bytes() == b"theirs"
        )


@pytest.mark.compiler
def test_a_build_is_kept_and_serves_every_checkout(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path / "cache"))
    others = shutil.ignore_patterns("__pycache__")  # __pycache__ may change during the copy
    elsewhere = shutil.copytree(ROOT / "kernels", tmp_path / "kernels", ignore=others)
    builds = []
    for folder in (ROOT / "kernels", ROOT / "kernels", elsewhere):
        monkeypatch.setattr(cpu_build, "HEADERS", folder / "include")
        cpu_build.library.cache_clear()
        cpu_build.library(folder / "delta_rule" / "cpu.cpp", "float", (32, 32))
        builds.append([(p.name, p.stat().st_ino) for p in (tmp_path / "cache").glob("*.so")])
    assert builds[0] == builds[1] == builds[2] and len(builds[0]) == 2
    before = cpu_build._key(elsewhere / "delta_rule" / "cpu.cpp", [])
    with (elsewhere / "include" / "call.h").open("a") as header:
        header.write("\n")
    assert cpu_build._key(elsewhere / "delta_rule" / "cpu.cpp", []) != before
    cpu_build.library.cache_clear()
