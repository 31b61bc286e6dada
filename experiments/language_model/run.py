"""One run of a language model: train, keep the best weights, measure validation and test split."""

import sys
import time
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastweights.cores import network_facts
from fastweights.experiments.language_model.measuring import both_splits, quickly, said, sample
from fastweights.experiments.language_model.options import (
    COMMAND,
    LanguageOptions,
    check,
    differences,
)
from fastweights.experiments.language_model.setting import Setting, setting_of
from fastweights.experiments.language_model.text import (
    VOCABULARY,
    check_fits,
    described,
    read_vocabulary,
    text_of,
)
from fastweights.experiments.sequence_run import RESULT, check_finite, seconds_of, timed
from fastweights.host.allocator import tune_allocator
from fastweights.host.atomic_files import write_bytes
from fastweights.host.commands import typed
from fastweights.host.errors import UserError, user_input
from fastweights.host.json_files import write_json
from fastweights.host.profiling import profiled
from fastweights.host.progress import Display
from fastweights.host.provenance import git_revision
from fastweights.host.stages import Stages
from fastweights.host.stopping import Interrupted, StopRequests
from fastweights.records import RunFolder, Scalars, check_xpid, claim_xpid
from fastweights.records.checkpoint_folder import CheckpointFolder, holds_checkpoints
from fastweights.records.checkpoints import CheckpointError, fitting, load, save_or_warn
from fastweights.tasks.language_model.corpus import Corpus
from fastweights.tasks.language_model.trainer import Columns, LanguageTrainer, Together
from fastweights.tasks.language_model.vocabulary import to_json
from fastweights.training import memory_needs
from fastweights.training.replicas import Replicas

SAMPLES = "samples.txt"
SHOWN_SAMPLE = 100  # characters shown on the terminal


class Kept(NamedTuple):
    """The files of the first learner; other learners have none."""

    folder: RunFolder
    checkpoints: CheckpointFolder
    scalars: Scalars


def run(options: LanguageOptions, resume: Path | None = None) -> int:
    """Train from scratch, or resume the run at `resume`; return the command's exit code."""
    tune_allocator()
    replicas = Replicas.from_environment()
    with user_input():
        check(options)
        if not resume and options.xpid is not None:
            check_xpid(options.xpid)
    text = text_of(options)
    with user_input():
        setting = setting_of(options, replicas, text)
        share = replicas.share(options.trainer.columns, "--columns")
        ids = text.splits["train"].ids
        Columns(ids, options.trainer.columns, share)  # raises if the text is too short
        with torch.device("meta"):
            model = options.build(text.vocabulary.size)
        memory_needs.check_fits(model, setting.device)
    with replicas.joined(setting.device):
        if replicas.is_first:
            print("\n".join(described(text)), flush=True)
        torch.manual_seed(options.seed)
        model = options.build(text.vocabulary.size).to(setting.device)
        stages = Stages("learner")
        together = Together(share, replicas.rank, replicas.sum)
        settings = options.trainer, options.seed, together, setting.precision, stages
        trainer = LanguageTrainer(model, ids, *settings)
        kept = _open(setting, trainer, resume)
        try:
            _train(setting, trainer, kept, stages)
        except Interrupted as interrupted:
            _say_interrupted(trainer, kept)
            return 128 + interrupted.signal_number
        finally:
            if kept:
                kept.scalars.close()
    if kept:
        _finish(setting, trainer, kept)
    return 0


def _open(setting: Setting, trainer: LanguageTrainer, resume: Path | None) -> Kept | None:
    """Make or open the run folder, and load its newest checkpoint in every learner."""
    options, kept, payload = setting.options, None, {}
    if setting.replicas.is_first:
        facts = network_facts(trainer.model, options.core, dict(options.model().core_options))
        folder = RunFolder.open(resume) if resume else _new_folder(options, facts)
        kept_checkpoints = CheckpointFolder(folder.path, milestones=())
        if resume:
            check_fits(setting.text, read_vocabulary(folder.path), folder.path)
            payload = _newest(setting, kept_checkpoints, folder)
        else:
            _keep_vocabulary(setting.text, folder)
        print(_begins(setting, facts["parameters"], folder.path), flush=True)
        at = payload.get("step", 0) if resume else None
        kept = Kept(folder, kept_checkpoints, Scalars(folder.path / "tensorboard", at))
    payload = setting.replicas.broadcast(payload)
    if payload:
        with fitting(resume or Path(options.savedir)):
            trainer.model.load_state_dict(payload["model_state_dict"])
            trainer.load_state_dict(payload["trainer"])
    if kept:
        kept.folder.rewind(trainer.updates)
    if not payload:
        _save_first(setting, trainer, kept)
    return kept


def _new_folder(options: LanguageOptions, facts: dict[str, Any]) -> RunFolder:
    xpid = options.xpid or claim_xpid(COMMAND, options.core, options.savedir)
    return RunFolder.create(options.savedir, xpid, options.to_dict(), facts)


def _keep_vocabulary(text: Corpus, folder: RunFolder) -> None:
    write_bytes(folder.path / VOCABULARY, to_json(text.vocabulary))


def _begins(setting: Setting, parameters: int, path: Path) -> str:
    options, count = setting.options, setting.replicas.count
    where = f"{count} learners on {setting.device.type}" if count > 1 else str(setting.device)
    return (
        f"training {options.core} ({parameters:,} parameters), seed {options.seed}, {where}\n"
        f"run folder: {path}"
    )


def _newest(setting: Setting, checkpoints: CheckpointFolder, folder: RunFolder) -> dict[str, Any]:
    """Return the payload to resume from; empty if the run stopped before its first checkpoint."""
    try:
        found = checkpoints.latest()
    except CheckpointError:
        if holds_checkpoints(folder.path):
            raise
        return {}
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    with fitting(found.path):
        saved, text = LanguageOptions.from_dict(found.payload["flags"]), found.payload["text"]
    if different := differences(saved, setting.options):
        raise CheckpointError(
            f"{found.path} is a checkpoint of another run than meta.json says, which has "
            f"{', '.join(different)}: put the run's own back"
        )
    if text != setting.text.digest:
        raise UserError(
            f"--data {setting.text.place} is not the text that {folder.path} was trained on: name "
            "its own text"
        )
    return found.payload


def _save_first(setting: Setting, trainer: LanguageTrainer, kept: Kept | None) -> None:
    """Write a checkpoint before training; if it cannot be written, remove the folder."""
    payload = _packed(setting, trainer)
    if kept:
        try:
            kept.checkpoints.save(payload, trainer.updates)
        except CheckpointError:
            (kept.folder.path / VOCABULARY).unlink()
            kept.folder.discard()
            raise


def _packed(setting: Setting, trainer: LanguageTrainer) -> dict[str, Any]:
    """Return a checkpoint's payload; all learners must call it."""
    return {
        "model_state_dict": trainer.model.state_dict(),
        "trainer": trainer.state_dict(),
        "flags": setting.options.to_dict(),
        "text": setting.text.digest,
        "git": git_revision(),
    }


def _train(setting: Setting, trainer: LanguageTrainer, kept: Kept | None, stages: Stages) -> None:
    options, stop, last_save = setting.options, StopRequests(), time.monotonic()
    display = Display(options.trainer.updates, trainer.updates, unit="updates")
    rows, held_out = timed(trainer.rows()), {}
    if options.profile and kept:
        rows = profiled(rows, (stages,), kept.folder.path)
    model = options.model()
    with stop, display if kept else nullcontext(), closing(rows):
        for row in rows:
            check_finite(row["total_loss"], row["step"], model.core, model.core_options)
            score = None
            if trainer.updates % options.evaluate_every == 0 or trainer.finished:
                if kept:
                    with stages("test"):
                        row |= (held_out := quickly(trainer.model, setting))
                        _sample(trainer, setting, kept, display)
                    score = -row["valid_loss"]
                due = True
            else:
                due = time.monotonic() - last_save > options.checkpoint_minutes * 60
            if kept:
                with stages("log"):
                    kept.folder.log(row)
                    kept.scalars.write(row)
                    display.update(trainer.updates, row | held_out)
            due, signal_number = _agreed(setting, stop, due)
            if due or signal_number:
                last_save = time.monotonic()
                with stages("save"):
                    _save(setting, trainer, kept, score, must=bool(signal_number or score))
            if signal_number and not trainer.finished:
                raise Interrupted(signal_number)


def _agreed(setting: Setting, stop: StopRequests, due: bool) -> tuple[bool, int]:
    """Return whether the first learner wants a checkpoint, and any learner's signal, or 0."""
    number = 0
    try:
        stop.check()
    except Interrupted as interrupted:
        number = interrupted.signal_number
    told = [torch.tensor([float(due and setting.replicas.is_first), float(number > 0)])]
    setting.replicas.sum(told)
    asked, stopped = told[0].tolist()
    return asked > 0, (number or 15) if stopped else 0


def _save(
    setting: Setting,
    trainer: LanguageTrainer,
    kept: Kept | None,
    score: float | None,
    must: bool,
) -> None:
    payload = _packed(setting, trainer)
    if kept:
        save = partial(kept.checkpoints.save, payload, trainer.updates, score)
        save() if must else save_or_warn(save)


def _finish(setting: Setting, trainer: LanguageTrainer, kept: Kept) -> None:
    """Measure the best weights on both held-out splits, and write the result."""
    best = load(kept.checkpoints.best_path, setting.device)
    with fitting(kept.checkpoints.best_path):
        trainer.model.load_state_dict(best["model_state_dict"])
    path, text, config = kept.folder.path, setting.text, trainer.config
    seconds, tokens = seconds_of(path), trainer.updates * config.columns * config.span
    result = both_splits(trainer.model, setting) | {
        "best_update": best["step"],
        "updates": trainer.updates,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "seconds": seconds,
        "tokens_per_second": round(tokens / seconds) if seconds else None,
        "text": {"form": text.form, "digest": text.digest, "counts": text.counts._asdict()},
    }
    write_json(path / RESULT, result)
    kept.folder.finish()
    print("\n".join(said(result)))


def _say_interrupted(trainer: LanguageTrainer, kept: Kept | None) -> None:
    if kept:
        kept.folder.finish(successful=False)
        go_on = f"{typed(COMMAND)} --resume {kept.folder.path}"
        print(f"saved at update {trainer.updates:,}; to go on:\n  {go_on}")


def _sample(trainer: LanguageTrainer, setting: Setting, kept: Kept, display: Display) -> None:
    if setting.options.sample_length:
        path = kept.folder.path / SAMPLES
        text = sample(trainer.model, setting, trainer.updates, path)
        display.say(f"sample: {' '.join(text.split())[:SHOWN_SAMPLE]}")
