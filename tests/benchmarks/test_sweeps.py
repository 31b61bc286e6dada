"""The program that times passes over a matrix, with and without split writes."""

import subprocess
from pathlib import Path

import pytest

from fastweights.kernels.machinery import cpu_build

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.compiler


@pytest.mark.parametrize("split", [[], [cpu_build.SPLIT_WRITES]])
def test_it_times_every_pass(split, tmp_path):
    program = tmp_path / "sweeps"
    flags = [flag for flag in cpu_build.vector_flags() if flag != cpu_build.SPLIT_WRITES]
    command = [cpu_build.compiler(), "-std=c++17", "-O3", "-w", *flags, *split]
    command += ["-I", str(ROOT / "kernels/include"), str(ROOT / "benchmarks/sweeps.cpp")]
    subprocess.run([*command, "-o", str(program)], check=True)
    first, *lines = subprocess.run(
        [str(program)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert ("separate" in first) == bool(split)
    times = {line[:22].strip(): float(line[22:].split()[0]) for line in lines}
    assert "a write, two reads" in times
    assert len(times) == 6 and all(time > 0 for time in times.values())
