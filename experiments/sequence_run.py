"""One run on a sequence task: train, keep the best epoch, measure the test splits."""

import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastweights.cores import growth, network_facts
from fastweights.experiments.sequence_data import sequences
from fastweights.experiments.sequence_measures import measure, write_lengths
from fastweights.experiments.sequence_options import SequenceOptions, check, differences
from fastweights.host.allocator import tune_allocator
from fastweights.host.commands import typed
from fastweights.host.devices import choose_device, use_threads
from fastweights.host.errors import UserError, expanded, user_input
from fastweights.host.json_files import write_json
from fastweights.host.profiling import profiled
from fastweights.host.progress import Display
from fastweights.host.provenance import git_revision
from fastweights.host.stages import Stages
from fastweights.host.stopping import Interrupted, StopRequests
from fastweights.kernels import SHORTEST_CHUNKED_UNROLL, use_backend
from fastweights.records import RunFolder, Scalars, check_xpid, claim_xpid, read_logs, read_meta
from fastweights.records.checkpoint_folder import CheckpointFolder, Found, holds_checkpoints
from fastweights.records.checkpoints import CheckpointError, fitting, load, save_or_warn
from fastweights.tasks import TASKS, Task
from fastweights.tasks.sequence_model import SequenceModel
from fastweights.tasks.train import Trainer
from fastweights.training.memory_needs import check_fits

RESULT = "result.json"


def saved_options(path: Path, command: str) -> SequenceOptions:
    """Return the options of the run at `path`, without its folders.

    Raises:
        UserError: there is no run, or it is another command's.
    """
    path = expanded(path)
    plain = read_meta(path).get("args", {})
    kind = plain.get("task_name")
    script = TASKS[kind].trained_by() if kind in TASKS else kind or "atari"
    if script != command:
        whose = f"a run of {kind}" if kind else "an agent's run"
        raise UserError(f"{path} is {whose}: go on with {typed(script)} --resume {path}")
    try:
        # The command line sets the folders; by default they are beside the run.
        return replace(SequenceOptions.from_dict(plain), savedir=path.resolve().parent, data=None)
    except ValueError as error:
        raise UserError(
            f"{path} was made by another version of the program ({error}): check out the revision "
            "that its meta.json names"
        ) from error


def trained(path: Path, command: str) -> tuple[SequenceModel, SequenceOptions]:
    """Return the best weights of the run at `path`, on the CPU, and its options.

    Raises:
        UserError: there are none; one line.
    """
    options = saved_options(path, command)
    best = load(CheckpointFolder(path, milestones=()).best_path, torch.device("cpu"))
    _check_own(best, options, path)
    model = options.build()
    with fitting(path):
        model.load_state_dict(_kept_weights(best))
    return model.eval(), options


def run(options: SequenceOptions, resume: Path | None = None) -> int:
    """Train from scratch, or resume the run at `resume`; return the command's exit code."""
    tune_allocator()
    with user_input():
        check(options)
        if not resume and options.xpid is not None:
            check_xpid(options.xpid)
        use_threads(options.num_threads)
        device = choose_device(options.device)
        if options.kernels != "auto":
            use_backend(options.kernels)
        _try(options, device)  # raise errors before sequences are drawn
    splits = sequences(options)
    options = options.reaching(max(int(split.lengths.max()) for split in splits.values()))
    torch.manual_seed(options.seed)
    model = options.build().to(device)
    facts = network_facts(model, options.core, dict(options.model().core_options))
    folder = RunFolder.open(resume) if resume else _new_folder(options, facts)
    stages = Stages("learner")
    learned, held_out = splits["train"], splits["valid"]
    settings = options.trainer, options.seed, stages
    trainer = Trainer(model, learned, held_out, options.task.blank, *settings)
    checkpoints = CheckpointFolder(folder.path, milestones=())
    if resume:
        _restore(trainer, options, checkpoints, folder, device)
    if not holds_checkpoints(folder.path):
        _save_first(trainer, options, checkpoints, folder)
    parameters = facts["parameters"]
    print(
        f"training {options.core} ({parameters:,} parameters) on {options.task}, seed "
        f"{options.seed}, {device}\nrun folder: {folder.path}",
        flush=True,
    )
    scalars = Scalars(folder.path / "tensorboard", trainer.updates if resume else None)
    try:
        _train(trainer, options, folder, checkpoints, scalars, stages)
    except Interrupted as interrupted:
        folder.finish(successful=False)
        command = typed(options.task.trained_by())
        print(f"saved at update {trainer.updates:,}; to go on:\n  {command} --resume {folder.path}")
        return 128 + interrupted.signal_number
    finally:
        scalars.close()
    measured = _measure(trainer, options, splits, checkpoints)
    write_lengths(measured, folder.path)
    result = measured | {"parameters": parameters, "seconds": seconds_of(folder.path)}
    write_json(folder.path / RESULT, result)
    folder.finish()
    _say(options.task, result)
    return 0


def _new_folder(options: SequenceOptions, facts: dict[str, Any]) -> RunFolder:
    xpid = options.xpid
    if xpid is None:
        xpid = claim_xpid(options.task.name, options.core, options.savedir)
    return RunFolder.create(options.savedir, xpid, options.to_dict(), facts)


def _try(options: SequenceOptions, device: torch.device) -> None:
    """Run a few words through the model; raise a one-line `ValueError` if it cannot compute."""
    with torch.device("meta"):
        check_fits(options.build(), device)
    model = options.build().to(device).eval()
    words = torch.zeros(SHORTEST_CHUNKED_UNROLL, 1, dtype=torch.long, device=device)
    with torch.no_grad():
        model(words, torch.ones_like(words, dtype=torch.bool))


def _save_first(
    trainer: Trainer, options: SequenceOptions, checkpoints: CheckpointFolder, folder: RunFolder
) -> None:
    """Write a checkpoint before training; if it cannot be written, remove the folder."""
    try:
        checkpoints.save(_packed(trainer, options) | {"git": git_revision()}, trainer.updates)
    except CheckpointError:
        folder.discard()
        raise


def _train(
    trainer: Trainer,
    options: SequenceOptions,
    folder: RunFolder,
    checkpoints: CheckpointFolder,
    scalars: Scalars,
    stages: Stages,
) -> None:
    stop, last_save, held_out, git = StopRequests(), time.monotonic(), {}, git_revision()
    total = options.trainer.epochs * trainer.updates_an_epoch
    display = Display(total, trainer.updates, unit="updates")

    def save(score: float | None = None) -> None:
        nonlocal last_save
        last_save = time.monotonic()
        with stages("save"):
            checkpoints.save(_packed(trainer, options) | {"git": git}, trainer.updates, score)

    rows = timed(trainer.rows())
    if options.profile:
        rows = profiled(rows, (stages,), folder.path)
    model = options.model()
    with stop, display, closing(rows):
        for row in rows:
            check_finite(row["total_loss"], trainer.updates, model.core, model.core_options)
            with stages("log"):
                folder.log(row)
                scalars.write(row)
                held_out |= {name: row[name] for name in row if name.startswith("valid_")}
                display.update(trainer.updates, row | held_out)
            if "score" in row and _is_kept(row["score"], trainer, checkpoints):
                save(row["score"])
            elif time.monotonic() - last_save > options.checkpoint_minutes * 60:
                save_or_warn(save)
            try:
                stop.check()
            except Interrupted:
                save(row.get("score"))
                raise


def check_finite(
    loss: float, update: int, core: str, core_options: Iterable[tuple[str, Any]]
) -> None:
    """Raise a one-line `UserError` with the remedy for a loss that is NaN or infinite."""
    if not math.isfinite(loss):
        grows = growth(core, **dict(core_options))
        raise UserError(
            f"the loss became {loss} at update {update}: "
            f"{f'{grows}; else ' if grows else ''}lower --learning-rate, or set --clip"
        )


def _is_kept(score: float, trainer: Trainer, checkpoints: CheckpointFolder) -> bool:
    """Whether a measurement gets a checkpoint: within an epoch, only the best and the last one."""
    within_epochs = trainer.config.evaluate_every > 0
    return not within_epochs or trainer.finished or score > checkpoints.best_score


def timed(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows, each with the positions learned a second."""
    start = time.monotonic()
    for row in rows:
        now = time.monotonic()
        yield row | {"positions_per_second": row["positions"] / (now - start)}
        start = time.monotonic()


def seconds_of(path: Path) -> float:
    """Return the seconds of updates and validation, from the log, over all parts of a run."""
    logs = read_logs(path)
    rates = zip(logs["positions"], logs["positions_per_second"], strict=True)
    return round(sum(positions / rate for positions, rate in rates if rate), 3)


def _packed(trainer: Trainer, options: SequenceOptions) -> dict[str, Any]:
    device, random = trainer.model.output.weight.device, {"torch": torch.get_rng_state()}
    if device.type == "cuda":  # for dropout
        random["cuda"] = torch.cuda.get_rng_state(device)
    return {
        "model_state_dict": trainer.model.state_dict(),
        "trainer": trainer.state_dict(),
        "flags": options.to_dict(),
        "rng": random,
    }


def _restore(
    trainer: Trainer,
    options: SequenceOptions,
    checkpoints: CheckpointFolder,
    folder: RunFolder,
    device: torch.device,
) -> None:
    try:
        found = checkpoints.latest(device)
    except CheckpointError:
        if holds_checkpoints(folder.path):
            raise
        folder.rewind(0)  # the run stopped before its first checkpoint
        return
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    _check_own(found.payload, options, found.path)
    with fitting(found.path):
        trainer.model.load_state_dict(found.payload["model_state_dict"])
        trainer.load_state_dict(found.payload["trainer"])
        random = found.payload["rng"]
        torch.set_rng_state(random["torch"].cpu())
        if device.type == "cuda" and "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"].cpu(), device)
    _mend_best(trainer, found, checkpoints)
    folder.rewind(found.payload["step"])


def _mend_best(trainer: Trainer, found: Found, checkpoints: CheckpointFolder) -> None:
    """Repair the best checkpoint after damage, or after `kill -9` between it and its link."""
    if trainer.best_score < 0 or trainer.best_score <= checkpoints.best_score:
        return
    score = found.payload.get("score")
    if score != trainer.best_score:
        print(
            f"warning: {checkpoints.best_path} is not the best epoch's any more: the newest "
            "replaces it, until there is a better one",
            file=sys.stderr,
        )
    if score is not None:
        checkpoints.link_best(found.path, score)


def _check_own(payload: dict[str, Any], options: SequenceOptions, path: Path) -> None:
    """Raise a one-line `CheckpointError` if a checkpoint has other options than the run."""
    with fitting(path):
        plain = payload["flags"]
        if plain.get("task_name") != options.task.name:
            other = plain.get("task_name") or "an agent"
            raise CheckpointError(f"{path} is a checkpoint of {other}, not of {options.task.name}")
        saved = SequenceOptions.from_dict(plain).reaching(options.core_window)
    if different := differences(saved, options):
        raise CheckpointError(
            f"{path} is a checkpoint of another run than meta.json says, which has "
            f"{', '.join(different)}: put the run's own back"
        )


def _measure(
    trainer: Trainer, options: SequenceOptions, splits: dict, checkpoints: CheckpointFolder
) -> dict[str, Any]:
    """Return the scores of the best weights on the held-out split and the test splits."""
    best = load(checkpoints.best_path, next(trainer.model.parameters()).device)
    _check_own(best, options, checkpoints.best_path)
    with fitting(checkpoints.best_path):
        trainer.model.load_state_dict(_kept_weights(best))
    counters = best["trainer"]["counters"]
    return measure(trainer.model, options, splits) | {
        "best_epoch": counters["epoch"],
        "best_update": counters["updates"],
        "epochs": trainer.epoch,
        "updates": trainer.updates,
    }


def _kept_weights(best: dict[str, Any]) -> dict[str, Tensor]:
    """The weights that a checkpoint's score is of: averages, where the run has them."""
    average = best["trainer"].get("average")
    if average is None:
        return best["model_state_dict"]
    own = "module."
    return {n.removeprefix(own): value for n, value in average.items() if n.startswith(own)}


def _say(task: Task, result: dict[str, Any]) -> None:
    for split in task.splits[2:]:
        found = result[split]
        print(
            f"{split}, best of {result['epochs']} epochs ({result['best_epoch']}): "
            f"{100 * found['sequence_accuracy']:.1f} % of sequences, "
            f"{100 * found['answer_accuracy']:.1f} % of answers"
        )
    for row in result["lengths"]:
        print(
            f"length {row['length']:,}: {100 * row['sequence_accuracy']:.1f} % of "
            f"{row['sequences']} sequences, {100 * row['answer_accuracy']:.1f} % of answers"
        )
