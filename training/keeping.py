"""The records of an agent's run: opening them, and saving checkpoints in them."""

from fastweights.agents import Network
from fastweights.cores import network_facts
from fastweights.host import check_kept, expanded, user_input
from fastweights.records import (
    MILESTONES,
    RunFolder,
    RunFolderError,
    RunRecords,
    check_new_run,
    claim_xpid,
    read_meta,
)
from fastweights.training.hashes import FILE as HASHES
from fastweights.training.loop import Training
from fastweights.training.options import RunOptions, changed_flags
from fastweights.training.replicas import Replicas
from fastweights.training.saved_agent import SavedAgent


def check_name(options: RunOptions) -> None:
    """Check that a new run can be recorded under its name, before anything else is created.

    Raises:
        UserError: the name cannot be a folder name, or belongs to another run; one line.
    """
    if options.xpid is not None and not _begins_again(options, options.xpid):
        check_new_run(options.savedir, options.xpid)


def open_records(options: RunOptions, saved: SavedAgent | None, network: Network) -> RunRecords:
    """Return the records of a new run, or of the run that `saved` belongs to.

    Raises:
        UserError: the folder cannot be created or opened; one line.
    """
    return RunRecords(_open(options, saved, network), MILESTONES, options.keep_every)


def save(training: Training, records: RunRecords | None) -> None:
    """Write a checkpoint, unless --disable-checkpoint is set or another learner holds the records.

    Raises:
        CheckpointError: could not write; earlier checkpoints are still there.
    """
    if records is None or training.options.disable_checkpoint:
        return
    metrics = training.metrics
    score = metrics.recent()["recent_full_game_return"]
    few = not metrics.window_is_full  # a lucky first game would stay the best
    records.checkpoints.save(training.checkpoint(), training.steps, score, provisional=few)


def mark_finished(saved: SavedAgent) -> None:
    """Record the end of a run that was killed between its last checkpoint and recording its end.

    A run whose recorded end is a failure keeps it. If torchrun started several processes, the first
    one records.

    Raises:
        RunFolderError: not writable, or another process is writing the run; one line.
    """
    if not Replicas.from_environment().leads or not (saved.run / "meta.json").exists():
        return
    meta = read_meta(saved.run)
    if not meta.get("successful") and meta.get("date_end") is None:
        RunFolder.open(saved.run, saved.options.to_dict()).finish()


def _open(options: RunOptions, saved: SavedAgent | None, network: Network) -> RunFolder:
    if saved:
        return RunFolder.open(saved.run, options.to_dict())
    xpid = options.xpid or claim_xpid(options.env, options.core, options.savedir)
    if _begins_again(options, xpid):
        folder = RunFolder.open(expanded(options.savedir) / xpid, options.to_dict())
        (folder.path / HASHES).unlink(missing_ok=True)  # they may be of another schedule
        return folder
    facts = network_facts(network, options.core, dict(options.core_options()))
    return RunFolder.create(options.savedir, xpid, options.to_dict(), facts)


def _begins_again(options: RunOptions, xpid: str) -> bool:
    """Return whether --auto-resume restarts a run that ended before its first checkpoint.

    Raises:
        UserError: such a run has other options, or finished; one line.
    """
    path = expanded(options.savedir) / xpid
    if not options.auto_resume or not (path / "meta.json").exists():
        return False
    meta = read_meta(path)
    try:
        begun = RunOptions.from_dict(meta["args"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} holds no run that --auto-resume can resume") from error
    with user_input():
        check_kept(changed_flags(begun, options))
    if meta.get("successful"):
        raise RunFolderError(
            f"{path} has finished and has no checkpoint; restarting would lose its log: "
            "choose another --xpid"
        )
    return True
