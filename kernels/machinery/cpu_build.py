"""Compilation of C++ kernels on first use, with the system's compiler and a cache on disk.

A build is for one source, scalar type and padded head size (or number of channels). Its two
functions are compiled in parallel into separate files, which takes one to two seconds each. The
cache, under FASTWEIGHTS_CACHE (or the user's cache folder), is keyed by everything that a build
depends on: sources, compiler and flags. The sources' location does not matter, so checkouts share
builds. Nothing is compiled at import, and Python's and torch's headers are not needed.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from fastweights.kernels.machinery.cache import private_cache_folder
from fastweights.kernels.machinery.dispatch import say_once

KERNELS = Path(__file__).resolve().parents[1]
HEADERS = KERNELS / "include"
COMPILERS = ("c++", "g++", "clang++")
VECTOR_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"),
    "AVX2": ("-mavx2", "-mfma"),
}


class BuildError(RuntimeError):
    """This machine cannot build the kernel. The message is one line with the reason."""


class CompilerKilledError(BuildError):
    """A signal, such as that of Ctrl-C, ended the compiler: another attempt may succeed."""


_saying = threading.Lock()
_failed: dict[Path, str] = {}  # not retried for every new shape

# On AMD cores, fused multiply-adds and stores slow each other down (kernels/include/lanes.h).
SPLIT_WRITES = "-DFASTWEIGHTS_SPLIT_WRITES"
OPENMP = "-fopenmp"


@cache
def compiler() -> str:
    """Return the path of the C++ compiler: $CXX, or the first of the usual names.

    Raises:
        BuildError: there is no compiler, or $CXX is not a single program without options.
    """
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    wanted = ", ".join(COMPILERS)
    if chosen:
        wanted = f"$CXX, which must be one program without options: {chosen}"
    raise BuildError(f"no C++ compiler found (looked for {wanted})")


@cache
def compiler_version(path: str) -> str:
    """Return the compiler's version line, which is part of a build's key.

    Raises:
        BuildError: the file cannot be executed.
    """
    try:
        return _output([path, "--version"]).stdout
    except OSError as error:
        raise BuildError(f"cannot run the C++ compiler {path}: {error.strerror}") from error


@cache
def why_no_openmp(path: str) -> str:
    """Return why the compiler cannot link with OpenMP, as with clang on macOS; "" if it can.

    Raises:
        BuildError: the compiler was killed, or there is no folder for temporary files.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.cpp")
            source.write_text("int main() {}\n")
            return _run([path, OPENMP, str(source), "-o", str(source.with_suffix(".out"))])
    except OSError as error:
        raise BuildError(f"cannot test the C++ compiler {path}: {error}") from error


def vector_flags(capability: str | None = None) -> tuple[str, ...]:
    """Return flags for the CPU capability that torch reports (ATEN_CPU_CAPABILITY lowers it)."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ()
    flags = VECTOR_FLAGS.get(capability or torch.backends.cpu.get_cpu_capability(), ())
    return (*flags, SPLIT_WRITES) if flags and made_by_amd() else flags


@cache
def made_by_amd() -> bool:
    """Return whether Linux reports an AMD processor; a wrong answer only costs some speed."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


class Library(NamedTuple):
    """A kernel's two functions, with the C interface of include/call.h."""

    forward: Callable[[bytes, bytes], None]
    backward: Callable[[bytes, bytes], None]


Lanes = tuple[int, int]  # padded sizes of a head's keys and values, or input and output channels


@cache
def library(source: Path, scalar: str, lanes: Lanes) -> Library:
    """Return the kernel, and build it if it is not cached; raise `BuildError` on failure."""
    with ThreadPoolExecutor(len(Library._fields)) as builders:
        builds = [
            builders.submit(shared_object, source, scalar, lanes, only=name)
            for name in Library._fields
        ]
        built = [build.result() for build in builds]
    return Library(*map(getattr, built, Library._fields))


def shared_object(
    source: Path, scalar: str, lanes: Lanes, only: str = "", capability: str | None = None
) -> ctypes.CDLL:
    """Return a source's functions, or just the one named `only`; raise `BuildError` on failure."""
    unwanted = [name for name in Library._fields if only not in ("", name)]
    flags = [
        *("-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        *vector_flags(capability),
        f"-DFASTWEIGHTS_SCALAR={scalar}",
        *(f"-DFASTWEIGHTS_KEYS={lanes[0]}", f"-DFASTWEIGHTS_VALUES={lanes[1]}"),
        *(f"-DFASTWEIGHTS_{name.upper()}=static" for name in unwanted),
    ]
    name = [source.parent.name, source.stem, only or "all", scalar, f"{lanes[0]}x{lanes[1]}"]
    with suppress(OSError):
        return _opened(_place(name, source, [*flags, OPENMP]))
    problem = why_no_openmp(compiler())
    flags += [] if problem else [OPENMP]
    loaded = _load_or_fail_again(source, flags, _place(name, source, flags))
    if problem:
        _say_that_kernels_use_one_thread(problem)
    return loaded


def _place(name: list[str], source: Path, flags: list[str]) -> Path:
    """Return the path of a build; builds with and without OpenMP have different paths."""
    return private_cache() / f"{'-'.join(name)}-{_key(source, flags)}.so"


def _load_or_fail_again(source: Path, flags: list[str], built: Path) -> ctypes.CDLL:
    if built in _failed:
        raise BuildError(_failed[built])
    try:
        return _load(source, flags, built)
    except CompilerKilledError:
        raise
    except BuildError as error:
        _failed[built] = str(error)
        raise


def private_cache() -> Path:
    """Return the build folder; raise `BuildError` if it cannot be used."""
    try:
        return private_cache_folder()
    except OSError as error:
        raise BuildError(f"cannot use the kernel cache: {error}") from error


def _load(source: Path, flags: list[str], built: Path) -> ctypes.CDLL:
    """Load the library from the cache, building it first if it is missing or damaged.

    A full disk may have truncated the file.
    """
    with suppress(OSError):
        return _opened(built)
    with turn(built):
        with suppress(OSError):  # another process may have built it in the meantime
            return _opened(built)
        try:
            _build(source, flags, built)
            return _opened(built)
        except OSError as error:
            raise BuildError(f"cannot load the kernel {built}: {error}") from error


def _opened(built: Path) -> ctypes.CDLL:
    if _is_cut_short(built):
        raise OSError(f"{built} is not complete")
    return ctypes.CDLL(str(built))


def _is_cut_short(built: Path) -> bool:
    """Return whether a 64-bit ELF library is truncated: its section table, at the end, is missing.

    Linux maps such a file, and the process dies of SIGBUS. Other systems' loaders refuse it.
    """
    with built.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or not head.startswith(b"\x7fELF\x02\x01"):  # 64-bit, little-endian
        return False
    table, size, count = *struct.unpack_from("<Q", head, 40), *struct.unpack_from("<HH", head, 58)
    return table + size * count > built.stat().st_size


@contextmanager
def turn(built: Path) -> Iterator[None]:
    """Hold a lock so that one process compiles while others wait for the same build.

    If files cannot be locked, each process compiles for itself.
    """
    from filelock import FileLock  # the import takes ten milliseconds

    lock = FileLock(built.with_name(f"{built.name}.lock"), fallback_to_soft=False)
    with suppress(OSError):
        built.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _key(source: Path, flags: list[str]) -> str:
    digest = hashlib.sha256()
    for part in (source, *sorted(HEADERS.glob("*.h"))):
        digest.update(part.read_bytes())
    described = [compiler(), compiler_version(compiler()), platform.platform(), *flags]
    digest.update("\n".join(described).encode())
    return digest.hexdigest()[:16]


def _build(source: Path, flags: list[str], built: Path) -> None:
    """Compile to a temporary file and rename it, so that no process ever sees a partial file."""
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".so", dir=built.parent)
    except OSError as error:
        raise BuildError(f"cannot write to the kernel cache {built.parent}: {error}") from error
    os.close(handle)
    try:
        command = [compiler(), *flags, f"-I{HEADERS}", str(source), "-o", name]
        if problem := _run(command):
            raise BuildError(f"{Path(command[0]).name} failed on {source.name}: {problem}")
        Path(name).chmod(0o755)  # other users may run an administrator's build
        Path(name).replace(built)
    finally:
        Path(name).unlink(missing_ok=True)


def _say_that_kernels_use_one_thread(problem: str) -> None:
    with _saying:
        say_once(f"C++ kernels run on one thread: no build with -fopenmp: {problem}")


def _run(command: list[str]) -> str:
    """Run a compiler; return the first line that reports an error, or nothing on success.

    Raises:
        CompilerKilledError: a signal ended the compiler.
    """
    result = _output(command)
    if result.returncode == 0:
        return ""
    if result.returncode < 0:
        raise CompilerKilledError(f"signal {-result.returncode} ended the compiler {command[0]}")
    lines = result.stderr.splitlines() or [f"exit status {result.returncode}"]
    return next((line for line in lines if "error" in line), lines[0])


def _output(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler; its messages may be in any encoding."""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
