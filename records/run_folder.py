"""The folder `{savedir}/{xpid}` of one run, in TorchBeast's layout.

    meta.json     options, network, dates, code, machine         logs.csv, fields.csv   log_table.py
    latest -> xpid                                               beside it

One process writes a run folder at a time; the lock ends with the process.
"""

import datetime
import errno
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fastweights.host import (
    FolderLock,
    UserError,
    check_all_contained,
    check_contained,
    code_revision,
    command_line,
    describe_os_error,
    environment_variables,
    expanded,
    machine,
    nearest_name,
    partial_name,
    read_object,
    remove_partials,
    slurm_job,
    versions,
    write_bytes,
)
from fastweights.records.log_table import LogTable

_FREE = "free disk space or choose a --savedir"
_SHORTER = "choose a shorter --xpid or --savedir"
_ADVICE = {errno.ENOSPC: _FREE, errno.EDQUOT: _FREE, errno.ENAMETOOLONG: _SHORTER}
_A_RUN_HAS = ("meta.json", "logs.csv", "model.tar", "checkpoints")
_A_RUN_ALSO_MAKES = ("fields.csv", "tensorboard", "hashes.csv", ".lock")


class RunFolderError(UserError):
    """A run folder cannot be created, opened or written."""


def check_new_run(savedir: Path, xpid: str) -> None:
    """Check that a new run can use this folder, before anything is written.

    Raises:
        RunFolderError: `xpid` cannot name a folder, or the folder holds a run; one line.
        UserError: see `check_all_contained`.
    """
    _check_name(xpid)
    path = expanded(savedir) / xpid
    with _writing(path):
        if path.is_dir():
            check_all_contained(path)
        _check_no_run(path)


def _check_name(xpid: str) -> None:
    if re.search(r"[/\\\x00-\x1f\x7f]", xpid) or xpid.strip() in ("", ".", "..", "latest"):
        raise RunFolderError(f"--xpid {xpid!r} cannot name a folder: choose another")


def claim_xpid(env: str, core: str, savedir: Path, now: datetime.datetime | None = None) -> str:
    """Create a folder `{env}-{core}-{YYYYmmdd-HHMMSS}` and return its name.

    If the name is taken, `-2`, `-3`, ... is appended: runs that start in the same second get
    different folders.

    Raises:
        RunFolderError: the folder cannot be created.
    """
    stamp = f"{now or datetime.datetime.now():%Y%m%d-%H%M%S}"
    base = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{env}-{core}-{stamp}").lstrip(".-")
    for count in itertools.count(1):
        path = expanded(savedir) / (base if count == 1 else f"{base}-{count}")
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.mkdir()
                return path.name
    raise AssertionError("one of them is free")


def read_meta(path: Path) -> dict[str, Any]:
    """Return `meta.json` of the run folder `path`, without locking it.

    Raises:
        RunFolderError: no run there, or a damaged file.
        UserError: see `check_contained`, which comes first.
    """
    path = Path(path)
    check_contained(path)
    try:
        meta = read_object(path / "meta.json")
    except FileNotFoundError as error:
        hint = runs_near(path)
        raise RunFolderError(f"{path} holds no run (no meta.json): {hint}") from error
    except NotADirectoryError as error:
        folder = path.parent
        own = (folder / "meta.json").exists()
        name = f"its run folder, {folder}" if own else f"run folders, such as {folder}/*/"
        raise RunFolderError(f"{path} is a file: give {name}") from error
    except OSError as error:
        raise RunFolderError(f"cannot read the run {describe_os_error(error)}") from error
    except ValueError as error:
        raise RunFolderError(f"{path / 'meta.json'} is damaged: {error}") from error
    if not isinstance(meta.get("args", {}), dict):
        raise RunFolderError(f"{path / 'meta.json'} is damaged: its args are not options")
    return meta


def current_options(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with which the run was last started or resumed, from its `meta.json`."""
    times = resumptions(meta)
    changed = times[-1].get("args") if times else None
    return (meta.get("args") or {}) | (changed if isinstance(changed, dict) else {})


def resumptions(meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what `meta.json` says of each time the run was resumed: date, command, revision."""
    found = meta.get("resumed")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def resolved_run(path: Path) -> Path:
    """Return the run folder, or the file in it, with links on the path to the folder resolved.

    Another run may move `latest` in the meantime. A relative path stays relative if possible, and a
    path to nothing stays unchanged. Raises `UserError` for ~ without a home folder.
    """
    path = expanded(path)
    if not path.exists():
        return path
    real = path.resolve() if path.is_dir() else path.parent.resolve() / path.name
    here = Path.cwd()
    return real if path.is_absolute() or not real.is_relative_to(here) else real.relative_to(here)


def runs_near(path: Path) -> str:
    """Return a hint if there is no run at `path`: the closest name, or else the newest run.

    Searches beside `path` and in the folder `runs`. If `path` is a folder of runs, or is inside a
    run, the hint says so.
    """
    if owner := next((one for one in path.parents if (one / "meta.json").exists()), None):
        return f"it would be inside the run {owner}: give that run, or one of its checkpoints"
    if inside := sorted(_metas(path)):
        several = f"{len(inside)} runs: give {path}/*/ for all, or" if inside[1:] else "a run: give"
        return f"it holds {several} {inside[0].parent}"
    folders = list(dict.fromkeys((path.parent, Path("runs"))))
    found = [meta.parent for folder in folders for meta in _metas(folder)]
    if near := nearest_name(path.name, [run.name for run in found]):
        return f"did you mean {next(run for run in found if run.name == near)}?"
    if found:
        newest = max(found, key=lambda run: (run / "meta.json").stat().st_mtime)
        return f"the newest run is {newest}"
    places = ("this folder" if folder == Path() else str(folder) for folder in folders)
    return f"there are no runs in {' or '.join(places)} yet"


def _metas(folder: Path) -> list[Path]:
    try:
        return [meta for meta in folder.glob("*/meta.json") if not meta.parent.is_symlink()]
    except OSError:  # unreadable
        return []


class RunFolder:
    """A run folder held for writing: from `create` or `open`, until `finish` or `close`."""

    def __init__(
        self,
        path: Path,
        lock: FolderLock,
        meta: dict[str, Any],
        were_there: frozenset[str] = frozenset(),
    ) -> None:
        self._were_there = were_there  # the user's files under names that a run also uses
        self.path = path
        self.xpid = path.name
        self.meta = meta
        self._lock = lock
        remove_partials(path)
        self._write_meta()
        self._table = LogTable(path)
        self._latest_before = _latest(path)
        _point_latest_to(path)

    @classmethod
    def create(
        cls,
        savedir: Path,
        xpid: str,
        config: dict[str, Any],
        network: dict[str, Any] | None = None,
    ) -> "RunFolder":
        """Create the folder of a new run.

        Args:
            savedir: folder of the run folders.
            xpid: name of the run folder.
            config: the resolved options; must be JSON-able.
            network: facts from `network_facts`.

        Raises:
            RunFolderError: not writable, in use, already holding a run, or `xpid` is no file name.
        """
        _check_name(xpid)
        path = expanded(savedir) / xpid
        with _writing(path):
            path.mkdir(parents=True, exist_ok=True)
            check_all_contained(path)
            with _locked(path) as lock:
                _check_no_run(path)
                were_there = frozenset(one.name for one in path.iterdir()) - {".lock"}
                return cls(path, lock, _new_meta(xpid, config, network), were_there)

    @classmethod
    def open(cls, path: Path, config: Mapping[str, Any] | None = None) -> "RunFolder":
        """Open the run at `path` (`latest` included) to resume it; `meta.json` records this.

        Args:
            path: the run's folder.
            config: the options that it resumes with; those that differ from its original options
                are recorded, too.

        Raises:
            RunFolderError: no run there, not writable, or another process is writing it.
        """
        path = expanded(path).resolve()
        read_meta(path)  # report the run's own errors before those of the lock
        with _writing(path), _locked(path) as lock:
            meta = read_meta(path)  # another process may have finished it in the meantime
            again: dict[str, Any] = {"date": _now(), "command": command_line()}
            if changed := _changed(config or {}, meta.get("args")):
                again["args"] = changed
            resumed = [*resumptions(meta), {**again, "git": code_revision()}]
            meta.update(date_end=None, successful=False, resumed=resumed)
            return cls(path, lock, meta)

    def log(self, row: dict[str, Any]) -> None:
        """Append a row to `logs.csv`: TorchBeast's columns and any others; None is left empty.

        Raises:
            RunFolderError: the disk is full, ...; no part of the row remains.
        """
        with _writing(self.path / "logs.csv"):
            self._table.log(row)

    def rewind(self, step: int) -> None:
        """Remove logged rows beyond `step` (agent steps), for a run resumed from there."""
        with _writing(self.path / "logs.csv"):
            self._table.rewind(step)

    def finish(self, successful: bool = True) -> None:
        """Record the end in `meta.json` and release the folder."""
        self.meta.update(date_end=_now(), successful=successful)
        try:
            with _writing(self.path / "meta.json"):
                self._write_meta()
        finally:
            self.close()

    def discard(self, beside: Iterable[str] = ()) -> None:
        """Release the folder and remove a new run that did not start; the user's files stay.

        Args:
            beside: names of further files of the run.
        """
        if "resumed" in self.meta:
            self.close()
            return
        with suppress(OSError):
            for name in {*_A_RUN_HAS, *_A_RUN_ALSO_MAKES, *beside} - self._were_there:
                if (path := self.path / name).is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            self.path.rmdir()
        self.close()
        if _latest(self.path) == self.path.name:
            self.path.with_name("latest").unlink()
            if self._latest_before is not None:
                _point_latest_to(self.path.with_name(self._latest_before))

    def close(self) -> None:
        """Release the folder without recording an end, as if the process had been killed."""
        self._lock.release()

    def _write_meta(self) -> None:
        text = json.dumps(self.meta, indent=4, sort_keys=True) + "\n"
        write_bytes(self.path / "meta.json", text.encode())


def _new_meta(xpid: str, config: dict[str, Any], network: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "args": config,
        "network": network,
        "xpid": xpid,
        "date_start": _now(),
        "date_end": None,
        "successful": False,
        "env": environment_variables(),
        "git": code_revision(),
        "slurm": slurm_job(),
        "versions": versions(),
        "machine": machine(),
        "command": command_line(),
    }


def _changed(config: Mapping[str, Any], begun: object) -> dict[str, Any]:
    """Return the options that differ from those the run began with."""
    before = begun if isinstance(begun, dict) else {}
    written = json.loads(json.dumps(dict(config), default=str))
    return {name: value for name, value in written.items() if value != before.get(name)}


def _check_no_run(path: Path) -> None:
    if any((path / name).exists() for name in _A_RUN_HAS):
        raise RunFolderError(
            f"{path} already holds a run: continue it with --resume {shlex.quote(str(path))}, or "
            "choose another --xpid"
        )


def _now() -> str:
    return f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S.%f}"


@contextmanager
def _locked(path: Path) -> Iterator[FolderLock]:
    """Yield a lock on the run folder; an error in the block releases it."""
    try:
        lock = FolderLock(path)
    except BlockingIOError as error:
        holder = f"process {error.strerror}" if error.strerror else "another process"
        raise RunFolderError(f"{path} is being written by {holder}: wait, or stop it") from error
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block, which writes `path`, into a `RunFolderError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            files = [part for part in (path, *path.parents) if part.is_file()]
            reason = f"{files[0]} is a file" if files else reason
        advice = _ADVICE.get(error.errno, "choose a --savedir")
        raise RunFolderError(f"cannot write {path}: {reason}; {advice}") from error


def _latest(path: Path) -> str | None:
    """Return the target of the link `latest` beside the run folder; None if it is not a link."""
    with suppress(OSError):
        return str(path.with_name("latest").readlink())
    return None


def _point_latest_to(path: Path) -> None:
    """Point `latest` to the run, unless links are impossible or `latest` is a folder."""
    latest = path.with_name("latest")
    beside = partial_name(latest)
    if latest.exists() and not latest.is_symlink():
        return
    try:
        beside.symlink_to(path.name, target_is_directory=True)
        beside.replace(latest)
    except (OSError, NotImplementedError):
        with suppress(OSError):
            beside.unlink(missing_ok=True)
