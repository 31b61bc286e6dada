"""Every kernel compiles for every architecture and keeps its matrices in registers.

The tests need NVRTC but no GPU. By default they compile the largest heads for the oldest and the
newest architecture; with FASTWEIGHTS_ALL_TESTS=1 they compile everything.
`python -m fastweights.kernels.cuda.registers` prints the table.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_cases import CASES
from cuda_needs import EVERYTHING, need_nvrtc

from fastweights.kernels.cuda import compiler
from fastweights.kernels.cuda.arguments import HEAD_SIZES
from fastweights.kernels.cuda.registers import ARCHITECTURES, usage
from fastweights.kernels.machinery import cache

need_nvrtc()

OPERATIONS = sorted({case.operation for case in CASES.values()})
SOURCE = compiler.source_file("linear_attention")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURES if EVERYTHING else ("sm_75", "sm_120"))
def test_no_kernel_spills(operation, architecture):
    for head_size in HEAD_SIZES if EVERYTHING else HEAD_SIZES[-1:]:
        kernels = usage(compiler.source_file(operation), head_size, architecture)
        assert set(kernels) == {f"{operation}_forward", f"{operation}_backward"}
        for name, used in kernels.items():
            assert used.spilled_bytes == used.stack_bytes == 0, f"{name} for {head_size}: {used}"
            assert used.registers <= 255


def test_cubins_are_kept_and_found_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    first = compiler.cubin(SOURCE, 8, "sm_90")
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == first

    def refuse(*call):
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "compile_source", refuse)
    assert compiler.cubin(SOURCE, 8, "sm_90") == first
    with pytest.raises(AssertionError, match="compiled again"):
        compiler.cubin(SOURCE, 8, "sm_80")
    monkeypatch.setattr(compiler, "compiler_version", lambda: "99.0")
    with pytest.raises(AssertionError, match="compiled again"):
        compiler.cubin(SOURCE, 8, "sm_90")


def test_processes_that_start_together_share_a_cache(tmp_path):
    program = (
        "from fastweights.kernels.cuda.compiler import cubin, source_file\n"
        "cubin(source_file('linear_attention'), 8, 'sm_90')"
    )
    environment = os.environ | {cache.VARIABLE: str(tmp_path)}
    root = Path(compiler.KERNELS).parent
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=root)
        for _ in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "folder"))
    with pytest.warns(UserWarning, match="compiled kernels are not cached"):
        compiler.cubin(SOURCE, 8, "sm_90")
