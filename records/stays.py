"""A resumed run stays in its folder."""

from pathlib import Path
from typing import Protocol

from fastweights.host import expanded


class Placed(Protocol):
    """Options that name a run's folder."""

    @property
    def savedir(self) -> Path:
        """Folder that holds the run folders."""

    @property
    def xpid(self) -> str | None:
        """Name of the run folder, if it was chosen."""


def check_stays(run: Path, before: Placed, asked: Placed, instead: str = "start a new run") -> None:
    """Raise a one-line `ValueError` if a resumed run's options name another folder than `run`.

    The run may have been moved since it was begun with the options `before`. The message suggests
    what to do `instead`.
    """
    folder = run.parent if asked.savedir == before.savedir else expanded(asked.savedir)
    name = run.name if asked.xpid in (None, before.xpid) else asked.xpid
    if (folder / name).resolve() != run.resolve():
        raise ValueError(
            f"a resumed run stays in its folder, {run}: leave --savedir and --xpid out, or "
            f"{instead}"
        )
