"""The run that a command line resumes, and the options that it may change."""

import argparse
import shlex
import sys

from fastweights.host import expanded
from fastweights.records import holds_checkpoints, resolved_run, runs_near
from fastweights.training import SavedAgent, open_agent


def saved_run(known: argparse.Namespace) -> SavedAgent | None:
    """Return the newest usable checkpoint of the run to resume; None for a new run.

    `known`: result of `atari_options.peek`. Raises `ValueError`, one line.
    """
    path = known.resume and resolved_run(known.resume)
    if path is None and known.auto_resume and known.xpid:
        path = resolved_run(expanded(known.savedir) / known.xpid)
        if not holds_checkpoints(path):
            return None
    elif path is None:
        return None
    elif known.preset is not None:
        raise ValueError("--preset contradicts --resume: a resumed run keeps its own options")
    elif not path.is_dir():
        raise ValueError(f"--resume {path}: no such run folder; {runs_near(path)}")
    elif (path / "meta.json").exists() and not holds_checkpoints(path):
        raise ValueError(
            f"--resume {path}: the run ended before its first checkpoint; to restart it, add "
            f"{shlex.join(['--auto-resume', '--savedir', str(path.parent), '--xpid', path.name])} "
            "to its original options"
        )
    saved = open_agent(path, env=known.env)
    for warning in saved.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return saved
