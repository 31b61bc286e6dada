"""Selection of a command's device, threads and precision."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fastweights.host.names import did_you_mean
from fastweights.host.provenance import processor_name
from fastweights.host.ranges import MOST_THREADS, THREADS, check_range


def choose_device(name: str, option: str = "--device") -> torch.device:
    """Return the device; `auto` is a CUDA GPU if there is one, else the CPU.

    Args:
        name: the device's name.
        option: the option that gave the name, for messages.

    Raises:
        ValueError: not a CPU, CUDA GPU or Apple GPU, or not on this machine; one line.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"{option} {name!r} is not one of auto, cpu, cuda, cuda:0, mps")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{option} {name}: torch sees {torch.cuda.device_count()} CUDA devices here; "
            f"use {option} cpu"
        )
    if device.type == "cpu":
        return torch.device("cpu")  # cpu:0 is the same device
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"{option} mps: no Apple GPU here; use {option} cpu")
    return device


CPUS = "FASTWEIGHTS_CPUS"
PRECISION = "FASTWEIGHTS_PRECISION"


def use_threads(count: int, processes: int = 1) -> None:
    """Let torch use `count` CPU threads; 0: an equal share of the CPUs per process."""
    check_range("num_threads", count, THREADS)
    torch.set_num_threads(count or max(1, processors() // processes))


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let torch use `count` CPU threads within the block; 0: no change."""
    before = torch.get_num_threads()
    if count in (0, before):  # setting the same number would empty oneDNN's caches
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def processors() -> int:
    """Return the number of CPUs that this process may use; FASTWEIGHTS_CPUS overrides it.

    Raises:
        ValueError: FASTWEIGHTS_CPUS is not a number of CPUs; one line.
    """
    if told := os.environ.get(CPUS):
        if not (told.isascii() and told.isdigit() and 1 <= int(told) <= MOST_THREADS):
            raise ValueError(f"{CPUS} must be a number from 1 to {MOST_THREADS}, not {told!r}")
        return int(told)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


PRECISIONS = ("auto", "float32", "bfloat16")


def compute_exactly(same_bits: bool = False) -> None:
    """Turn TF32 off, so that float32 is as precise on a GPU as on a CPU.

    `same_bits`: also make cuDNN's convolutions deterministic, which is slower.
    """
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = same_bits


@contextmanager
def restoring_torch() -> Iterator[None]:
    """Restore torch's number of threads, TF32 and cuDNN's determinism at the end of the block."""
    threads, cudnn = torch.get_num_threads(), torch.backends.cudnn
    tf32, deterministic = cudnn.allow_tf32, cudnn.deterministic
    matmul_tf32 = torch.backends.cuda.matmul.allow_tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.allow_tf32, cudnn.deterministic = tf32, deterministic
        torch.backends.cuda.matmul.allow_tf32 = matmul_tf32


def choose_precision(name: str, *devices: torch.device) -> str:
    """Return the precision; `auto` is bfloat16 if all `devices` gain time by it.

    Otherwise `auto` is float32. FASTWEIGHTS_PRECISION overrides `auto`.

    Raises:
        ValueError: an unknown name; one line.
    """
    option = "--precision"
    if name == "auto":
        option, name = PRECISION, os.environ.get(PRECISION) or "auto"
    if name not in PRECISIONS:
        known = f"{', '.join(PRECISIONS)}{did_you_mean(name, PRECISIONS)}"
        raise ValueError(f"{option} {name!r} is not one of {known}")
    if name != "auto":
        return name
    return "bfloat16" if all(map(_prefers_bfloat16, devices)) else "float32"


def _prefers_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 in hardware, unless it is known to lose time.

    Intel's processors lose time if they have AVX512_BF16 without AMX, as in virtual machines that
    hide AMX (docs/results/precision).
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    # PyTorch's own check considers only the processor; ATEN_CPU_CAPABILITY can lower what is used.
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    if torch.cpu._is_amx_tile_supported():
        return True
    return torch.cpu._is_avx512_bf16_supported() and "AMD" in processor_name()
