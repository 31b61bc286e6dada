"""A grid of runs: settings x cores x seeds, each run a command in a separate process.

Finished runs are kept, interrupted runs are resumed, and missing runs are started, in parallel as
requested, one thread each. `docs/experiments.md` shows how to define a grid and its table.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fastweights.experiments.jobs import STOPPED, Job, SideBySide, names, report
from fastweights.host import (
    Console,
    FolderLock,
    Interrupted,
    UserError,
    flag,
    make_folder,
    processors,
    read_object,
    user_input,
    without_new_folders,
)
from fastweights.records import current_options, read_meta


class Run(ABC):
    """Abstract: one training run, with its run folder and the commands that fill it."""

    options: Any  # the command's options, including `savedir` and `xpid`

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.options.savedir / str(self.options.xpid)

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the folder holds the run's results."""

    @abstractmethod
    def start(self) -> list[str]:
        """Return the command that starts the run on one thread."""

    @abstractmethod
    def go_on(self) -> list[str]:
        """Return the command that resumes the run in the folder on one thread."""

    @abstractmethod
    def differences(self, stored: dict[str, Any]) -> list[str]:
        """Return the options that differ from a stored run's: `--core rdn (was lstm)`.

        Raises:
            ValueError: `stored` are not the options of such a run; one line.
        """

    @abstractmethod
    def result(self) -> dict[str, Any]:
        """Return the finished run's measurements as JSON; `UserError`, one line, if damaged."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def begun(self) -> bool:
        """Whether the folder holds a run, finished or not."""
        return (self.path / "meta.json").exists()

    def command(self) -> list[str] | None:
        """Return the command to run next; None if the run has finished."""
        if self.finished:
            return None
        return self.go_on() if self.begun else self.start()

    def check(self) -> None:
        """Raise a one-line `UserError` if the folder holds a run with other options."""
        if not (self.begun or self.finished):
            return
        try:
            different = self.differences(current_options(read_meta(self.path)))
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{self.path} is not a run of this table: {error}") from error
        if different:
            raise UserError(
                f"{self.path} holds a run that differs from the table's, which has "
                f"{', '.join(different)}: move it away, or choose another --runs"
            )
        if self.finished:
            self.result()  # report a damaged result before hours of training


class Cell(NamedTuple):
    """A cell of a grid: its labels, including `seed`, and its run.

    Cells may share a run. A cell without a run has only the paper's figure.
    """

    labels: Mapping[str, Any]
    run: Run | None


def cells(run: Callable[..., Run], **axes: Sequence[Any]) -> list[Cell]:
    """Return every combination of the axes' values as cells.

    `cells(run, depth=(5, 10), core=CORES, seed=(1, 2))`: `run` takes one value per axis, by name.
    """
    combinations = (dict(zip(axes, one, strict=True)) for one in itertools.product(*axes.values()))
    return [Cell(labels, run(**labels)) for labels in combinations]


@dataclass(frozen=True)
class Grid:
    """Cells whose runs are in one folder."""

    title: str
    cells: Sequence[Cell]
    folder: Path

    def __post_init__(self) -> None:
        """Check that every cell has a seed, and every run a separate folder.

        Raises:
            ValueError: one line.
        """
        if any("seed" not in cell.labels for cell in self.cells):
            raise ValueError("every cell of a grid needs a seed: cells(run, ..., seed=(1, 2, 3))")
        known: dict[Path, Run] = {}
        for run in self.runs:
            if not run.options.xpid:
                raise ValueError("a run of a grid needs an xpid: the name of its folder")
            if run.path in known:
                raise ValueError(
                    f"two runs of the grid have the folder {run.path}: their xpid must reflect "
                    "all their differences"
                )
            known[run.path] = run

    @property
    def runs(self) -> list[Run]:
        """The cells' runs, without duplicates."""
        return list(dict.fromkeys(cell.run for cell in self.cells if cell.run))

    def results(self) -> list[dict[str, Any]]:
        """Return the result of each cell whose run has finished, with the cell's labels."""
        finished = [cell for cell in self.cells if cell.run and cell.run.finished]
        return [{**cell.labels, **cell.run.result()} for cell in finished]

    def fill(self, at_once: int) -> dict[str, str]:
        """Run missing runs; return the reasons for failures, by run name.

        Raises:
            UserError: the folder has a run with other options, or another process is filling it.
            Interrupted: a signal requested a stop. All processes have ended; a later call resumes.
        """
        with _locked(self.folder):
            runs, console = self.runs, Console()
            for run in runs:
                run.check()
            missing = [run for run in runs if not run.finished]
            said = f"{self.title}: {len(runs)} runs, {len(missing)} of them to do"
            said += f": {names(run.name for run in missing)}" if missing else ""
            console.say(said)
            side_by_side = SideBySide(at_once, self.folder, console)
            due = {run: run.command() for run in missing}
            while due:
                side_by_side.run([Job(run.name, run.command) for run in due])
                # A run may need two commands, such as one to finish training, then test games.
                due = {
                    run: then
                    for run, now in due.items()
                    if run.name not in side_by_side.failures
                    and (then := run.command()) not in (None, now)
                }
        unmeasured = {run.name: "it has no result" for run in missing if not run.finished}
        return unmeasured | side_by_side.failures


def rebuild(
    grid: Grid, write: Callable[[Mapping[str, str]], None], out: Path, at_once: int = 0
) -> int:
    """Fill the grid and write its tables; return the command's exit code.

    Args:
        grid: the grid.
        write: writes the tables into `out`, given `Grid.fill`'s failures. Not called if the grid
            was interrupted.
        out: folder of the tables.
        at_once: number of parallel runs; 0: one per CPU core.
    """
    if at_once < 0:
        raise UserError(f"--jobs must be at least 0, not {at_once}")
    with user_input():
        at_once = at_once or processors()
    with without_new_folders(grid.folder):
        for named, folder in (("--runs", grid.folder), ("--out", out)):
            make_folder(folder, named)
    try:
        failures = grid.fill(at_once)
    except Interrupted as interrupted:
        print(STOPPED)
        return 128 + interrupted.signal_number
    write(failures)
    return report(failures, grid.folder)


def as_flags(plain: Mapping[str, Any]) -> list[str]:
    """Return the command line that sets these options, which are named like their flags."""
    return list(itertools.chain.from_iterable(itertools.starmap(_flag, plain.items())))


def read_result(path: Path, of: Callable[[dict[str, Any]], Any]) -> Any:
    """Return `of` applied to a JSON file's content; one-line `UserError` for a damaged file."""
    try:
        return of(read_object(path))
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): delete it to measure it again") from error


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    values = value if isinstance(value, list | tuple) else [value]
    return [flag(name), *map(str, values)]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        lock = FolderLock(folder)
    except BlockingIOError as error:
        raise UserError(
            f"{folder} is being filled by another table (process {error.strerror}): wait for it, "
            "or choose another --runs"
        ) from error
    try:
        yield
    finally:
        lock.release()
