"""What only a command line may decide, even if a run's files say it: clusters and foreign paths.

Run folders may come from strangers (docs/security.md). A Ray cluster runs code in the processes
that join it, and a path may lead anywhere.
"""

from dataclasses import replace
from pathlib import Path

from fastweights.training.options import RunOptions
from fastweights.training.saved_agent import SavedAgent


def without_cluster(options: RunOptions) -> RunOptions:
    """Return a file's options without the address of its Ray cluster."""
    return replace(options, ray_address=None)


def check_cluster(saved: SavedAgent, asked: RunOptions) -> None:
    """Raise a one-line `ValueError` if a run used a cluster and the command line names none."""
    address = saved.options.ray_address
    if address is not None and asked.ray_address is None and asked.engine == "ray":
        raise ValueError(
            f"{saved.run} was trained on the Ray cluster at {address}, and a cluster runs code in "
            f"the processes that join it: if you trust it, add --ray-address {address}; otherwise "
            "go on without it, with --engine local"
        )


def with_init_from(options: RunOptions, asked: Path | None, run: Path) -> RunOptions:
    """Return a file's options with the weights that the command line names, where it began there.

    Raises:
        ValueError: the command line names none although the run began with another's, or the
            reverse; one line.
    """
    if options.init_from is not None and asked is None:
        raise ValueError(
            f"{run} began with the weights of {options.init_from}: name them with --init-from"
        )
    if options.init_from is None and asked is not None:
        raise ValueError(f"{run} began with new weights: leave --init-from out")
    return replace(options, init_from=asked)
