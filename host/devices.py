"""Which device, how many threads and which precision a command uses."""

import os
import platform

import torch

from fastweights.host.names import did_you_mean


def choose_device(name: str, option: str = "--device") -> torch.device:
    """`auto` is a GPU where there is one, else the CPU; `option` is where the name was given.

    Raises a one-line `ValueError` for a name torch does not know or a device this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"{option} {name!r} is none of auto, cpu, cuda, cuda:0, mps") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{option} {name}: torch sees {torch.cuda.device_count()} CUDA devices here; "
            f"use {option} cpu"
        )
    if device.type == "cpu":
        return torch.device("cpu")  # cpu:0 is no other device
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"{option} mps: no Apple GPU here; use {option} cpu")
    return device


MOST_THREADS = 4096
CPUS = "FASTWEIGHTS_CPUS"
PRECISION = "FASTWEIGHTS_PRECISION"


def use_threads(count: int, processes: int = 1) -> None:
    """Let torch use `count` CPU threads; 0: its part of those that `processes` may run on."""
    if count < 0:
        raise ValueError(f"--num-threads must be at least 0, not {count}")
    if count > MOST_THREADS:
        raise ValueError(f"--num-threads must be at most {MOST_THREADS}")
    torch.set_num_threads(count or max(1, processors() // processes))


def processors() -> int:
    """CPUs that this process may run on; FASTWEIGHTS_CPUS, where it is set.

    Raises a one-line `ValueError` where FASTWEIGHTS_CPUS is no number of CPUs.
    """
    if told := os.environ.get(CPUS):
        if not (told.isascii() and told.isdigit() and 1 <= int(told) <= MOST_THREADS):
            raise ValueError(f"{CPUS} must be a number from 1 to {MOST_THREADS}, not {told!r}")
        return int(told)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


PRECISIONS = ("auto", "float32", "bfloat16")


def compute_exactly(same_bits: bool = False) -> None:
    """Have float32 be float32 on a GPU, where cuDNN would round to TF32; on a CPU it is.

    `same_bits`: cuDNN's convolutions also give the same bits each time, which takes longer.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = same_bits


def choose_precision(name: str, *devices: torch.device) -> str:
    """`auto` is bfloat16 where all `devices` multiply it in hardware, else float32.

    FASTWEIGHTS_PRECISION, where it is set, says what `auto` is instead.

    Raises a one-line `ValueError` for an unknown name.
    """
    option = "--precision"
    if name == "auto":
        option, name = PRECISION, os.environ.get(PRECISION) or "auto"
    if name not in PRECISIONS:
        known = f"{', '.join(PRECISIONS)}{did_you_mean(name, PRECISIONS)}"
        raise ValueError(f"{option} {name!r} is none of {known}")
    if name != "auto":
        return name
    return "bfloat16" if all(map(_multiplies_bfloat16, devices)) else "float32"


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    # PyTorch's own question looks at the processor only; ATEN_CPU_CAPABILITY can hold it to less.
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
