"""The origin of a run for `meta.json`: code, command, versions, machine.

Only environment variables on an allow-list are recorded: run folders are shared, and environments
may contain passwords.
"""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

_ENVIRONMENT = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("OMP_PROC_BIND", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_AFFINITY", "KMP_BLOCKTIME"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "PYTHONHASHSEED"),
    *("WORLD_SIZE", "RANK", "LOCAL_RANK"),
    *("FASTWEIGHTS_BACKEND", "FASTWEIGHTS_CPUS", "FASTWEIGHTS_PRECISION"),
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"),
)
_SLURM = (
    *("JOB_ID", "JOB_NAME", "JOB_PARTITION", "JOB_NUM_NODES", "ARRAY_JOB_ID", "ARRAY_TASK_ID"),
    *("NNODES", "NODEID", "NODELIST", "NTASKS", "PROCID", "LOCALID", "CPUS_PER_TASK", "GPUS"),
    *("CPUS_ON_NODE", "GPUS_ON_NODE", "MEM_PER_NODE", "RESTART_COUNT"),
)
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py")
_REPOSITORY = Path(__file__).resolve().parent.parent


def environment_variables() -> dict[str, str]:
    """Return the environment variables that affect how a run computes."""
    names = (*_ENVIRONMENT, *(f"SLURM_{name}" for name in _SLURM))
    return {name: os.environ[name] for name in names if name in os.environ}


def slurm_job() -> dict[str, str] | None:
    """Return the Slurm job in TorchBeast's form (`job_id`, ...); None outside of a job."""
    variables = {name.lower(): os.environ.get(f"SLURM_{name}") for name in _SLURM}
    given = {name: value for name, value in variables.items() if value is not None}
    return given if "job_id" in given else None


@cache
def code_revision() -> dict[str, Any] | None:
    """Return `git_revision` of this code when the process first asked for it.

    Commits made while a run goes on do not change the code that it runs.
    """
    return git_revision(_REPOSITORY)


def git_revision(folder: Path) -> dict[str, Any] | None:
    """Return `commit`, `branch` (None if detached) and `is_dirty` of the repository at `folder`.

    None if `folder` is not a repository's root: the commit would be wrong for a package installed
    inside another repository.
    """
    try:
        asked = ("--show-toplevel", "HEAD", "--abbrev-ref", "HEAD")
        root, commit, branch = _git(folder, "rev-parse", *asked).rsplit("\n", 2)
        if Path(root).resolve() != Path(folder).resolve():
            return None
        is_dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
        branch = None if branch == "HEAD" else branch
        return {"commit": commit, "branch": branch, "is_dirty": is_dirty}
    except (OSError, subprocess.SubprocessError):
        return None


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of packages that affect results; None if not installed.

    If PyTorch is loaded, its own version string is used, which is more precise: 2.13.0+cu130.
    """
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    if torch := sys.modules.get("torch"):
        found["torch"] = str(torch.__version__)
    return found


def machine() -> dict[str, Any]:
    """Return operating system, processor, cores, memory in bytes, and the GPUs already in use."""
    return {
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "gpus": _gpu_names(),
    }


def command_line() -> str:
    """Return the command in a form that can be pasted into a shell."""
    return shlex.join([Path(sys.executable).name, *sys.argv])


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()


def processor_name() -> str:
    """Return the processor's model name; empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def memory_bytes() -> int | None:
    """Return the bytes of this machine's memory; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _gpu_names() -> list[str]:
    # Querying a GPU's name starts CUDA and costs memory, so do it only if CUDA is already running.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
