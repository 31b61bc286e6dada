"""One run on a sequence task: train, keep the best epoch, evaluate on the test splits."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastweights.cores import count_parameters
from fastweights.experiments.learning import (
    Learning,
    finish,
    open_records,
    seconds_of,
)
from fastweights.experiments.sequences.data import (
    digest_of,
    held_out_note,
    longest_in,
    sequences_of,
    sized,
    source_of,
)
from fastweights.experiments.sequences.measures import measure, write_lengths
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.outcomes import best_baseline
from fastweights.experiments.sequences.saved import check_own, check_task, kept_weights
from fastweights.host import (
    ProgressDisplay,
    Stages,
    UserError,
    choose_device,
    compute_exactly,
    restoring_torch,
    tune_allocator,
    use_threads,
    user_input,
)
from fastweights.kernels import SHORTEST_CHUNKED_UNROLL, restoring_backend, use_backend
from fastweights.records import (
    CheckpointFolder,
    FoundCheckpoint,
    RunRecords,
    check_new_run,
    fitting,
    load_checkpoint,
)
from fastweights.tasks import Sequences, Task, Trainer
from fastweights.training import check_memory


@restoring_backend()
@restoring_torch()
def run_sequence_task(options: SequenceOptions, resume: Path | None = None) -> int:
    """Train from scratch, or resume the run at `resume`; return the command's exit code."""
    tune_allocator()
    with user_input():
        options.check()
        if not resume and options.xpid is not None:
            check_new_run(options.savedir, options.xpid)
        use_threads(options.num_threads)
        compute_exactly()
        device = choose_device(options.device)
        if options.kernels != "auto":
            use_backend(options.kernels)
        _try(options, device)  # raise errors before generating sequences
    splits = sequences_of(options)
    digest = digest_of(splits)
    if not resume:  # a resumed run keeps its original sizes
        options = sized(options, splits)
    options = options.reaching(longest_in(splits))
    torch.manual_seed(options.seed)
    model = options.build().to(device)
    stages = Stages("learner")
    learned, held_out = splits["train"], Sequences.join([splits[s] for s in options.selecting])
    settings = options.trainer, options.seed, stages
    trainer = Trainer(model, learned, held_out, options.task.blank, *settings)
    records = open_records(options, model, resume)
    if resume:
        _restore(trainer, options, digest, records, device)
    parameters = count_parameters(model)
    opening = (
        f"training {options.core} ({parameters:,} parameters) on {options.task}, "
        f"seed {options.seed}, {device}"
    )
    code = Learning(
        trainer=trainer,
        options=options,
        total=options.trainer.epochs * trainer.updates_an_epoch,
        opening="\n".join(filter(None, (opening, held_out_note(options, splits)))),
        stages=stages,
        pack=partial(_packed, trainer, options, digest),
        measure=partial(_score_to_keep, trainer, records.checkpoints),
        records=records,
    ).run()
    if code == 0:
        measured = _measure(trainer, options, splits, records.checkpoints)
        write_lengths(measured, records.path)
        result = measured | {"parameters": parameters, "seconds": seconds_of(records.path)}
        finish(records, result)
        _say(options.task, result)
        if note := trainer.note():
            print(note)
    return code


def _try(options: SequenceOptions, device: torch.device) -> None:
    """Run a few words through the model; raise a one-line `ValueError` if this fails."""
    with torch.device("meta"):
        check_memory(options.build(), device)
    model = options.build().to(device).eval()
    words = torch.zeros(SHORTEST_CHUNKED_UNROLL, 1, dtype=torch.long, device=device)
    with torch.no_grad():
        model(words, torch.ones_like(words, dtype=torch.bool))


def _score_to_keep(
    trainer: Trainer, checkpoints: CheckpointFolder, row: dict[str, Any], display: ProgressDisplay
) -> float | None:
    """Return the score of a measurement that gets a checkpoint.

    Of several measurements in an epoch, only the best and the last get one.
    """
    score = row.get("score")
    if score is None or not trainer.config.evaluate_every:
        return score
    return score if trainer.finished or score > checkpoints.best_score else None


def _packed(trainer: Trainer, options: SequenceOptions, digest: str) -> dict[str, Any]:
    device, random = trainer.model.output.weight.device, {"torch": torch.get_rng_state()}
    if device.type == "cuda":  # for dropout
        random["cuda"] = torch.cuda.get_rng_state(device)
    return {
        "model_state_dict": trainer.model.state_dict(),
        "trainer": trainer.state_dict(),
        "flags": options.to_dict(),
        "sequences": digest,
        "rng": random,
    }


def _restore(
    trainer: Trainer,
    options: SequenceOptions,
    digest: str,
    records: RunRecords,
    device: torch.device,
) -> None:
    if (found := records.newest(device)) is None:
        return
    check_task(found.payload, options, found.path)
    if found.payload.get("sequences", digest) != digest:  # older checkpoints have no digest
        place = "--files " * bool(options.files) + str(source_of(options))
        raise UserError(
            f"the sequences in {place} differ from those that {records.path} began with: restore "
            "them, or start a new run"
        )
    check_own(found.payload, options, found.path)
    with fitting(found.path):
        trainer.model.load_state_dict(found.payload["model_state_dict"])
        trainer.load_state_dict(found.payload["trainer"])
        random = found.payload["rng"]
        torch.set_rng_state(random["torch"].cpu())
        if device.type == "cuda" and "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"].cpu(), device)
    _mend_best(trainer, found, records.checkpoints)


def _mend_best(trainer: Trainer, found: FoundCheckpoint, checkpoints: CheckpointFolder) -> None:
    """Replace the best checkpoint with the newest if the best epoch's is damaged or missing."""
    if trainer.best_score < 0 or trainer.best_score <= checkpoints.best_score:
        return
    print(
        f"warning: {checkpoints.best_path} does not hold the best epoch any more: the newest "
        "checkpoint replaces it until there is a better one",
        file=sys.stderr,
    )
    if (score := found.payload.get("score")) is not None:
        checkpoints.link_best(found.path, score)


def _measure(
    trainer: Trainer, options: SequenceOptions, splits: dict, checkpoints: CheckpointFolder
) -> dict[str, Any]:
    """Return the scores of the best weights on the held-out and test splits."""
    best = load_checkpoint(checkpoints.best_path, next(trainer.model.parameters()).device)
    check_own(best, options, checkpoints.best_path)
    with fitting(checkpoints.best_path):
        trainer.model.load_state_dict(kept_weights(best))
    counters = best["trainer"]["counters"]
    return measure(trainer.model, options, splits) | {
        "best_epoch": counters["epoch"],
        "best_update": counters["updates"],
        "epochs": trainer.epoch,
        "updates": trainer.updates,
    }


def _say(task: Task, result: dict[str, Any]) -> None:
    for split in task.splits[2:]:
        found = result[split]
        print(
            f"{split}, best of {result['epochs']} epochs ({result['best_epoch']}): "
            f"{100 * found['sequence_accuracy']:.1f} % of sequences, "
            f"{100 * found['answer_accuracy']:.1f} % of answers"
        )
        sequences, answers = (
            100 * best_baseline(result, split, f"{what}_accuracy")[0]
            for what in ("sequence", "answer")
        )
        print(f"  the best baselines: {sequences:.1f} % of sequences, {answers:.1f} % of answers")
    for row in result["lengths"]:
        size = "" if row["size"] == row["length"] else f" (size {row['size']:,})"
        print(
            f"length {row['length']:,}{size}: {100 * row['sequence_accuracy']:.1f} % of "
            f"{row['sequences']} sequences, {100 * row['answer_accuracy']:.1f} % of answers"
        )
