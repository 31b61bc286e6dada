"""One run of a language model: train, keep the best weights, evaluate on validation and test."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastweights.cores import count_parameters
from fastweights.experiments.language_model.measuring import both_splits, quickly, said, sample
from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.experiments.language_model.setting import Setting, setting_of
from fastweights.experiments.language_model.text import (
    VOCABULARY,
    check_fits,
    described,
    read_vocabulary,
    text_of,
)
from fastweights.experiments.learning import (
    Learning,
    check_same_run,
    finish,
    open_records,
    seconds_of,
)
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.host import (
    ProgressDisplay,
    Stages,
    UserError,
    restoring_torch,
    tune_allocator,
    user_input,
)
from fastweights.kernels import restoring_backend
from fastweights.records import (
    RunRecords,
    check_new_run,
    fitting,
    holds_checkpoints,
    load_checkpoint,
    read_logs,
)
from fastweights.tasks.language_model import Columns, LanguageTrainer, Together, vocabulary_to_json
from fastweights.training import Replicas, check_kernels, check_memory

SAMPLES = "samples.txt"
SHOWN_SAMPLE = 100  # characters shown on the terminal


@restoring_backend()
@restoring_torch()
def run_language_model(options: LanguageOptions, resume: Path | None = None) -> int:
    """Train from scratch, or resume the run at `resume`; return the command's exit code."""
    tune_allocator()
    replicas = Replicas.from_environment()
    with user_input():
        options.check()
        if not resume and options.xpid is not None:
            check_new_run(options.savedir, options.xpid)
    text = text_of(options)
    with user_input():
        setting = setting_of(options, replicas, text)
        share = replicas.share(options.trainer.columns, "--columns")
        ids = text.splits["train"].ids
        Columns(ids, options.trainer.columns, share)  # raises if the text is too short
        with torch.device("meta"):
            model = options.build(text.vocabulary.size)
        check_memory(model, setting.device)
    with replicas.joined(setting.device):
        if replicas.leads:
            print("\n".join(described(text)), flush=True)
        torch.manual_seed(options.seed)
        with user_input():
            model = options.build(text.vocabulary.size).to(setting.device)
            check_kernels(model.core, setting.device)
        stages = Stages("learner")
        together = Together(share, replicas.rank, replicas.sum)
        settings = options.trainer, options.seed, together, setting.precision.context, stages
        trainer = LanguageTrainer(model, ids, *settings)
        records = _open(setting, trainer, resume)
        _restore(setting, trainer, records, resume)
        code = Learning(
            trainer=trainer,
            options=options,
            total=options.trainer.updates,
            opening=_opening(setting, model),
            stages=stages,
            pack=partial(_packed, setting, trainer),
            measure=partial(_measure, setting, trainer, records, stages),
            records=records,
            replicas=replicas,
        ).run()
    if records and code == 0:
        _finish(setting, trainer, records)
    return code


def _open(setting: Setting, trainer: LanguageTrainer, resume: Path | None) -> RunRecords | None:
    """Create or open the run folder in the first learner."""
    if not setting.replicas.leads:
        return None
    beside = {VOCABULARY: vocabulary_to_json(setting.text.vocabulary)}
    records = open_records(setting.options, trainer.model, resume, beside)
    # A run that was killed before its first checkpoint may have no vocabulary yet.
    begun = holds_checkpoints(records.path) or (records.path / VOCABULARY).exists()
    if resume and begun:
        check_fits(setting.text, read_vocabulary(records.path), records.path)
    return records


def _restore(
    setting: Setting, trainer: LanguageTrainer, records: RunRecords | None, resume: Path | None
) -> None:
    """Load the newest checkpoint of the run at `resume` in all learners."""
    payload = _newest(setting, records) if records and resume else {}
    payload = setting.replicas.broadcast(payload)
    if payload:
        with fitting(resume or Path(setting.options.savedir)):
            trainer.model.load_state_dict(payload["model_state_dict"])
            trainer.load_state_dict(payload["trainer"])


def _opening(setting: Setting, model: nn.Module) -> str:
    options, count = setting.options, setting.replicas.count
    where = f"{count} learners on {setting.device.type}" if count > 1 else str(setting.device)
    parameters = count_parameters(model)
    line = f"training {options.core} ({parameters:,} parameters), seed {options.seed}, {where}"
    return "\n".join(filter(None, (line, options.trainer.note())))


def _newest(setting: Setting, records: RunRecords) -> dict[str, Any]:
    """Return the payload to resume from; empty if the run stopped before its first checkpoint."""
    if (found := records.newest()) is None:
        return {}
    with fitting(found.path):
        saved, text = LanguageOptions.from_dict(found.payload["flags"]), found.payload["text"]
    check_same_run(found.path, differing_learning_options(saved, setting.options))
    if text != setting.text.digest:
        raise UserError(
            f"--data {setting.text.place} is not the text that {records.path} was trained on: name "
            "its own text"
        )
    return found.payload


def _packed(setting: Setting, trainer: LanguageTrainer) -> dict[str, Any]:
    """Return a checkpoint's payload; all learners must call it."""
    return {
        "model_state_dict": trainer.model.state_dict(),
        "trainer": trainer.state_dict(),
        "flags": setting.options.to_dict(),
        "text": setting.text.digest,
    }


def _measure(
    setting: Setting,
    trainer: LanguageTrainer,
    records: RunRecords | None,
    stages: Stages,
    row: dict[str, Any],
    display: ProgressDisplay,
) -> float | None:
    """Add a measurement on the validation split to the row if one is due; return its score."""
    if not records or (trainer.updates % setting.options.evaluate_every and not trainer.finished):
        return None
    with stages("test"):
        row |= quickly(trainer.model, setting)
        if setting.options.sample_length:
            text = sample(trainer.model, setting, trainer.updates, records.path / SAMPLES)
            display.say(f"sample: {' '.join(text.split())[:SHOWN_SAMPLE]}")
    return -row["valid_loss"]


def _finish(setting: Setting, trainer: LanguageTrainer, records: RunRecords) -> None:
    """Evaluate the best weights on both held-out splits, and write the result."""
    best = load_checkpoint(records.checkpoints.best_path, setting.device)
    with fitting(records.checkpoints.best_path):
        trainer.model.load_state_dict(best["model_state_dict"])
    text = setting.text
    seconds = seconds_of(records.path)
    tokens = sum(read_logs(records.path).get("positions", ()))
    result = both_splits(trainer.model, setting) | {
        "best_update": best["step"],
        "updates": trainer.updates,
        "parameters": count_parameters(trainer.model),
        "seconds": seconds,
        "tokens_per_second": round(tokens / seconds) if seconds else None,
        "text": {"form": text.form, "digest": text.digest, "counts": text.counts._asdict()},
    }
    finish(records, result)
    print("\n".join(said(result)))
