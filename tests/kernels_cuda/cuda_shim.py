"""Compile the sources of the CUDA kernels as C++ and run them on the CPU (see `fiber.h`).

`run_on_cpu` replaces `kernels.cuda.launch.run_on_device`. Everything around it, from the wrappers
to the packing of arguments, is the same as on a GPU.

To check memory bounds, run `pytest -s` with FASTWEIGHTS_SHIM_FLAGS="-fsanitize=address -g", libasan
preloaded (LD_PRELOAD) and ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0.
"""

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from array import array
from functools import cache
from pathlib import Path

import torch

from fastweights.kernels.cuda import compiler
from fastweights.kernels.cuda.launch import Kernel
from fastweights.kernels.machinery import cpu_build
from fastweights.kernels.machinery.cache import private_cache_folder

HERE = Path(__file__).parent
FLAGS = os.environ.get("FASTWEIGHTS_SHIM_FLAGS", "").split()
PROBLEMS = {1: "lanes wait for each other forever", 2: "the argument struct has another size"}
ASCENDING, DESCENDING, SHUFFLED = 0, 1, 2  # order in which lanes run between barriers

ENTRY = re.compile(r"(\w+)\(const __grid_constant__ ")  # matches a kernel's name
LAUNCHER = """
extern "C" __attribute__((visibility("default")))
int run_{0}(const void* words, size_t bytes, int blocks, int threads, int order) {{
  return fiber::launch({0}, words, bytes, blocks, threads, order);
}}
"""


class Shim:
    """Runs kernels with lanes in a given order; `sources` may be a folder of changed sources."""

    def __init__(self, order: int = SHUFFLED, sources: Path | None = None) -> None:
        self.order, self.sources = order, sources
        self.launched: list[Kernel] = []

    def run_on_cpu(
        self,
        kernel: Kernel,
        head_size: int,
        blocks: int,
        threads: int,
        words: array,
        device: torch.device,
    ) -> None:
        assert device.type == "cpu"
        self.launched.append(kernel)
        source, headers = kernel.source, compiler.HEADERS
        if self.sources:
            source = self.sources / source.parent.name / source.name
            headers = self.sources / "cuda"
        run = getattr(library(source, headers, head_size), f"run_{kernel.symbol}")
        address, bytes_ = words.buffer_info()[0], len(words) * words.itemsize
        problem = run(
            ctypes.c_void_p(address), ctypes.c_size_t(bytes_), blocks, threads, self.order
        )
        if problem:
            raise RuntimeError(f"{kernel.symbol}: {PROBLEMS[problem]}")


@cache
def library(kernel: Path, headers: Path, head_size: int) -> ctypes.CDLL:
    operation = kernel.parent.name
    code = '#include "fiber.h"\n#include "cuda.cu"\n'
    code += "".join(map(LAUNCHER.format, ENTRY.findall(kernel.read_text())))
    folders = [HERE, kernel.parent, headers]
    compiled_by = cpu_build.compiler_version(cpu_build.compiler())
    digest = hashlib.sha256(f"{code} {head_size} {FLAGS} {compiled_by}".encode())
    for path in sorted(path for folder in folders for path in folder.glob("*.[ch]u*")):
        digest.update(path.read_bytes())
    digest.update((HERE / "fiber.h").read_bytes())
    name = f"shim-{operation}-{head_size}-{digest.hexdigest()[:20]}.so"
    target = private_cache_folder() / "shim" / name
    if not target.exists():
        with cpu_build.turn(target):  # pytest's workers share compiled sources
            if not target.exists():
                _compile(code, folders, head_size, target)
    return ctypes.CDLL(str(target))


def _compile(code: str, folders: list[Path], head_size: int, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        source, built = Path(scratch) / "shim.cpp", Path(scratch) / "shim.so"
        source.write_text(code)
        options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-DHEAD_SIZE={head_size}"]
        # Otherwise the loader shares one array of shared memory among all of these libraries.
        options.append("-fvisibility=hidden")
        includes = [f"-I{folder}" for folder in folders]
        command = [cpu_build.compiler(), *options, *FLAGS, *includes, source, "-o", built]
        subprocess.run(command, check=True)
        built.replace(target)
