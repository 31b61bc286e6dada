"""Compilation of CUDA C++ to machine code with NVRTC, with a cache on disk.

A cubin's name contains a hash of everything it depends on: the sources, the head size, the
architecture and the compiler's version. Processes that start together may all compile. Each writes
a temporary file and renames it, so that a reader never sees a partial file.
"""

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fastweights.host import write_bytes
from fastweights.kernels.machinery.cache import private_cache_folder

KERNELS = Path(__file__).resolve().parent.parent
HEADERS = KERNELS / "cuda"
STANDARD = "c++17"


def source_file(operation: str) -> Path:
    """Return an operation's CUDA source; the folder's name is the prefix of the kernel names."""
    return KERNELS / operation / "cuda.cu"


@cache
def compiler_version() -> str:
    """Return NVRTC's version, such as `13.0`; raise `ImportError` if it is not installed."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def compile_source(
    source: Path, head_size: int, architecture: str, verbose: bool = False
) -> tuple[bytes, str]:
    """Compile for `architecture` ("sm_90"); return the cubin and the compiler's log.

    Needs no GPU. With `verbose`, the log lists registers.
    """
    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    options = ProgramOptions(
        name=str(source),
        arch=architecture,
        std=STANDARD,
        include_path=[str(HEADERS)],
        define_macro=[("HEAD_SIZE", str(head_size))],
        # Otherwise NVRTC 13.0, which torch requires, rejects generic lambdas as host functions.
        device_as_default_execution_space=True,
        ptxas_options=["-v"] if verbose else None,
    )
    program = Program(source.read_text(), "c++", options)
    cubin = program.compile("cubin", logs=log).code
    return bytes(cubin), log.getvalue()


def cubin_name(source: Path, head_size: int, architecture: str) -> str:
    """Return the cubin's file name, which contains a hash of sources, size and compiler."""
    digest = hashlib.sha256(f"{compiler_version()} {STANDARD}".encode())
    for path in [source, *sorted(HEADERS.glob("*.cuh"))]:
        digest.update(path.name.encode() + path.read_bytes())
    return f"{source.parent.name}-{head_size}-{architecture}-{digest.hexdigest()[:20]}.cubin"


def cubin(source: Path, head_size: int, architecture: str, anew: bool = False) -> bytes:
    """Return the cubin from the cache, or compile and store it; with `anew`, always compile."""
    name = cubin_name(source, head_size, architecture)
    with _kept_if_possible():
        path = private_cache_folder() / name
        if path.is_file() and not anew:
            return path.read_bytes()
    code, _ = compile_source(source, head_size, architecture)
    with _kept_if_possible():
        write_bytes(private_cache_folder() / name, code)
    return code


@contextmanager
def _kept_if_possible() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a read-only cache must not stop the run
        warnings.warn(f"compiled kernels are not cached: {error}", stacklevel=4)
