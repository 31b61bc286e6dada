"""One checkpoint: a dict of plain tensors, numbers, strings, lists and dicts in one file.

It loads with `torch.load(weights_only=True)`, so a foreign checkpoint cannot run code. It uses
TorchBeast's names (`model_state_dict`, `optimizer_state_dict`, `scheduler_state_dict`, `flags`,
`stats`), so tools for TorchBeast can read it.
"""

import _codecs
import errno
import io
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastweights.host import UserError, describe_os_error, write_bytes

FORMAT = "fastweights-checkpoint"
VERSION = 1

_PLAIN = (type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter)
_EXPANDED = 2**24  # bytes in all; a core may expand a constant part of its state
_ZIP_BEGINS = b"PK\x03\x04"
_OLD_FILE_BEGINS = b"\x80\x02\x8a\x0a"  # torch before 1.6: a pickled magic number
# Functions in a pickled NumPy number, by their names in NumPy 1 and 2; all are safe.
_SCALAR = np.float64(0).__reduce__()[0]
_NUMPY_SCALARS = [
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    (_codecs.encode, "_codecs.encode"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")),
]


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or trusted."""


def save_checkpoint(payload: dict[str, Any], path: Path) -> None:
    """Write `payload` plus `format` and `version`; the file at `path` is complete at all times.

    Raises:
        CheckpointError: the disk is full, read-only, ...; an older file at `path` is untouched.
        TypeError: a value in `payload` could not be loaded again; the message names its keys.
    """
    try:
        write(payload, path)
    except OSError as error:
        raise cannot_write(path, error) from error


def write(payload: dict[str, Any], path: Path) -> None:
    """Write as `save_checkpoint` does, but let errors of the operating system stay `OSError`s."""
    payload = {"format": FORMAT, "version": VERSION, **payload}
    check_plain(payload, "payload")
    # Write from memory: torch's file writer hides the operating system's reason for a failure.
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    with buffer.getbuffer() as content:
        write_bytes(path, content)


def check_plain(value: Any, where: str) -> None:
    """Raise a `TypeError` for a value that a checkpoint cannot hold; `where` begins its message."""
    # Check exact types: a NumPy float64 is a `float`, and a NamedTuple a `tuple`; neither loads.
    if type(value) in (dict, OrderedDict):
        for key, item in value.items():
            if type(key) not in (str, int):
                raise TypeError(f"{where} has the key {key!r}; checkpoints hold str and int keys")
            check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            check_plain(item, f"{where}[{index}]")
    elif type(value) not in _PLAIN:
        raise TypeError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}; checkpoints hold "
            "only tensors, numbers, strings, lists and dicts"
        )


def load_checkpoint(path: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """Return the checkpoint at `path`, its tensors on `map_location`. Runs no code from the file.

    Raises:
        CheckpointError: missing, unreadable, truncated, damaged or foreign, or of another version;
            one line with the reason.
    """
    payload = read_plain(path, map_location)
    if payload.get("format") != FORMAT:
        raise CheckpointError(_foreign(path, "it was written by another program"))
    if payload.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint {path} has version {payload.get('version')!r}, but this program reads "
            f"version {VERSION}: use the fastweights release that wrote it"
        )
    return payload


def read_plain(path: Path, map_location: str | torch.device = "cpu") -> dict[Any, Any]:
    """Return the dict of plain values in a `torch.save` file, including other programs' files.

    Plain values are tensors, numbers (including NumPy's, as in TorchBeast's files), strings, lists
    and dicts. Runs no code from the file. Raises `CheckpointError` as `load_checkpoint` does.
    """
    path = Path(path)
    _check_archive(path)
    try:
        with torch.serialization.safe_globals(_NUMPY_SCALARS):
            payload = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # a foreign file can raise any exception
        raise CheckpointError(_why_refused(path, map_location)) from error
    if not isinstance(payload, dict):
        raise CheckpointError(_foreign(path, "it was written by another program"))
    if not _stores_its_elements(list(_tensors_in(payload))):  # a copy could fill the memory
        raise CheckpointError(_foreign(path, "a tensor has more elements than the file stores"))
    return payload


def save_or_warn(save: Callable[[], object]) -> None:
    """Call `save`; if the checkpoint cannot be written, print a warning and continue."""
    try:
        save()
    except CheckpointError as error:
        print(f"warning: {error}; training continues", file=sys.stderr)


def cannot_write(path: Path, error: OSError, kept: str = "") -> CheckpointError:
    """Return the error for `path`: the reason, the checkpoint that remains, and the remedy.

    `kept`: the checkpoint that the run still has; empty for a file outside a run.
    """
    remedy = "free disk space, or make the folder writable"
    if error.errno == errno.EFBIG:
        remedy = "raise the file-size limit (ulimit -f), or write to another disk"
    parts = (f"cannot write checkpoint {path}: {error.strerror or error}", kept, remedy)
    return CheckpointError("; ".join(part for part in parts if part))


def _check_archive(path: Path) -> None:
    """Raise unless `path` is a complete zip archive of `torch.save`, or its old format."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(_ZIP_BEGINS))
    except FileNotFoundError as error:
        raise CheckpointError(f"no checkpoint at {path}: check the path") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"{path} is a folder, not a checkpoint: give a file in it") from error
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {describe_os_error(error)}") from error
    if not begin:
        raise CheckpointError(_damaged(path, "it is empty"))
    if begin == _OLD_FILE_BEGINS:
        return  # the old format has no checksums
    if begin != _ZIP_BEGINS[: len(begin)]:
        raise CheckpointError(_foreign(path, "it is not an archive that torch.save writes"))
    # torch does not check checksums; a flipped bit would become a wrong weight.
    try:
        with zipfile.ZipFile(path) as archive:
            packed = any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist())
            broken = None if packed else archive.testzip()
    except Exception as error:  # damage can raise almost any exception
        raise CheckpointError(_damaged(path, "it is truncated or damaged")) from error
    if packed:  # a few bytes could unpack to more than fits into memory
        raise CheckpointError(_foreign(path, "it is compressed, which torch.save never does"))
    if broken is not None:
        raise CheckpointError(_damaged(path, f"the checksum of {broken} is wrong"))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple | set):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part)


def _stores_its_elements(tensors: Collection[torch.Tensor]) -> bool:
    """Return whether copies of all tensors would take about as much memory as the tensors do.

    Sparse tensors, those on the device `meta`, and those expanded (stride 0) to a large size would
    take more, as would many that share their data; a pair of tied weights is allowed.
    """
    if any(each.layout is not torch.strided or each.is_meta for each in tensors):
        return False
    storages = (each.untyped_storage() for each in tensors)
    stored = sum({each.data_ptr(): each.nbytes() for each in storages}.values())
    return sum(each.numel() * each.element_size() for each in tensors) <= 2 * stored + _EXPANDED


def _why_refused(path: Path, map_location: str | torch.device) -> str:
    try:  # read the names in the pickle, without importing or running them
        with torch.serialization.safe_globals(_NUMPY_SCALARS):
            unsafe = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:
        unsafe = []
    if unsafe:
        return _foreign(
            path, f"it holds Python objects ({', '.join(unsafe[:3])}), none of which was loaded"
        )
    if torch.device(map_location).type == "cpu":
        return _foreign(path, "torch.load cannot read it")
    return f"checkpoint {path} cannot be loaded onto {map_location}: choose another device"


def _damaged(path: Path, reason: str) -> str:
    return f"checkpoint {path} cannot be used: {reason}; use an older checkpoint of the run"


def _foreign(path: Path, reason: str) -> str:
    return (
        f"{path} is not a fastweights checkpoint: {reason}; "
        "give a run folder, or a file in its checkpoints folder"
    )


_MISFITS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError)


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn errors from another version's, or a tampered, checkpoint into `CheckpointError`."""
    try:
        yield
    except (CheckpointError, torch.OutOfMemoryError):
        raise
    except _MISFITS as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"checkpoint {path} does not fit this version of the program ({reason}): "
            "check out the revision named in its `git` entry"
        ) from error
