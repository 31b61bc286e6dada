"""Building on first use: several processes at once, no compiler, importing, the cache."""

import os
import subprocess
import sys
import time
from pathlib import Path

from kernels import cpu_build

ROOT = Path(__file__).parents[2]
RUN = """
import torch, kernels
from kernels.example import make
from kernels.registry import OPERATIONS
case = make(OPERATIONS["delta_rule"], {"T": 9, "B": 2, "H": 1, "K": 3, "V": 3}).to(torch.float32)
found = case.run_with_gradients()
with kernels.backend("reference"):
    expected = case.run_with_gradients()
for name in expected:
    torch.testing.assert_close(found[name], expected[name])
"""


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_that_start_together_do_not_collide(tmp_path):
    running = [start(RUN, FASTWEIGHTS_CACHE=str(tmp_path)) for _ in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]


def test_without_a_compiler_one_line_says_so(tmp_path):
    process = start(RUN, FASTWEIGHTS_CACHE=str(tmp_path), PATH="", CXX="")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    lines = [line for line in errors.splitlines() if "slower" in line]
    assert lines == [
        "delta_rule runs on the slower chunked backend: "
        "no C++ compiler found (looked for c++, g++, clang++)"
    ]


IMPORT = """
import sys, torch

before = set(sys.modules)  # torch itself may load a part of NVIDIA's package `cuda`
import cores, kernels.registry

assert "cuda" in kernels.registry.OPERATIONS["delta_rule"].backends
assert not torch.cuda.is_initialized()
assert not [name for name in set(sys.modules) - before if name.split(".")[0] == "cuda"]
"""


def test_importing_builds_nothing_and_starts_no_gpu(tmp_path):
    process = start(IMPORT, FASTWEIGHTS_CACHE=str(tmp_path / "cache"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert not (tmp_path / "cache").exists()


def test_a_build_takes_seconds_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    cpu_build.library.cache_clear()
    source = ROOT / "kernels" / "delta_rule" / "cpu.cpp"
    began = time.perf_counter()
    cpu_build.library(source, "float", 32)
    first = time.perf_counter() - began
    cpu_build.library.cache_clear()
    began = time.perf_counter()
    cpu_build.library(source, "float", 32)
    assert time.perf_counter() - began < first / 5
    assert len(list(tmp_path.iterdir())) == 1
    cpu_build.library.cache_clear()
