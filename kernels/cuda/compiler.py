"""CUDA C++ to machine code with NVRTC, and a cache of the result on disk.

A cubin's name holds the hash of everything it was made from: the sources, the head size, the
architecture and the compiler's version. Processes that start together may all compile; each writes
beside the final name and renames, so that a reader never sees half a file.
"""

import hashlib
import io
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fastweights.kernels.machinery.cache import private_cache_folder

KERNELS = Path(__file__).resolve().parent.parent
HEADERS = KERNELS / "cuda"
STANDARD = "c++17"


def source_file(operation: str) -> Path:
    """What an operation's kernels are compiled from; its folder's name begins theirs."""
    return KERNELS / operation / "cuda.cu"


@cache
def compiler_version() -> str:
    """NVRTC's version as `13.0`; an `ImportError` where it is not installed."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def compile_source(
    source: Path, head_size: int, architecture: str, verbose: bool = False
) -> tuple[bytes, str]:
    """A cubin for `architecture` ("sm_90") and the compiler's log, with registers if `verbose`.

    Needs no GPU.
    """
    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    options = ProgramOptions(
        name=str(source),
        arch=architecture,
        std=STANDARD,
        include_path=[str(HEADERS)],
        define_macro=[("HEAD_SIZE", str(head_size))],
        ptxas_options=["-v"] if verbose else None,
    )
    program = Program(source.read_text(), "c++", options)
    cubin = program.compile("cubin", logs=log).code
    return bytes(cubin), log.getvalue()


def cubin_name(source: Path, head_size: int, architecture: str) -> str:
    digest = hashlib.sha256(f"{compiler_version()} {STANDARD}".encode())
    for path in [source, *sorted(HEADERS.glob("*.cuh"))]:
        digest.update(path.name.encode() + path.read_bytes())
    return f"{source.parent.name}-{head_size}-{architecture}-{digest.hexdigest()[:20]}.cubin"


def cubin(source: Path, head_size: int, architecture: str, anew: bool = False) -> bytes:
    """Machine code from the cache, or compiled now and put there; `anew`: whatever is there."""
    name = cubin_name(source, head_size, architecture)
    with _kept_if_possible():
        path = private_cache_folder() / name
        if path.is_file() and not anew:
            return path.read_bytes()
    code, _ = compile_source(source, head_size, architecture)
    with _kept_if_possible():
        write_beside_and_rename(private_cache_folder() / name, code)
    return code


@contextmanager
def _kept_if_possible() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a read-only home is no reason not to run
        warnings.warn(f"compiled kernels are not kept: {error}", stacklevel=4)


def write_beside_and_rename(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)
