"""The records and the training loop of sequence-task and language-model runs."""

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fastweights.cores import core_arguments, growth, network_facts
from fastweights.experiments.learning_options import LearningOptions
from fastweights.host import (
    Interrupted,
    ProgressDisplay,
    Stages,
    StopRequests,
    UserError,
    code_revision,
    profiled,
    typed_command,
    write_json,
)
from fastweights.records import (
    CheckpointError,
    RunFolder,
    RunRecords,
    claim_xpid,
    read_logs,
    save_or_warn,
)
from fastweights.training import Replicas

RESULT_FILE = "result.json"


def open_records(
    options: LearningOptions,
    model: nn.Module,
    resume: Path | None,
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> RunRecords:
    """Return the records of the run at `resume`, or of a new run.

    A new folder is named by --xpid, or else after the task, the core and the time.

    Args:
        options: the run's options.
        model: the model in training.
        resume: the folder of a run to resume.
        beside: names and contents of files that a new run needs in addition to its checkpoints.

    Raises:
        RunFolderError: the folder cannot be created or opened.
    """
    if resume:
        return RunRecords(RunFolder.open(resume), beside=beside)
    xpid = options.xpid
    if xpid is None:
        xpid = claim_xpid(options.task_name, options.core, options.savedir)
    facts = network_facts(model, options.core, dict(options.model().core_options))
    folder = RunFolder.create(options.savedir, xpid, options.to_dict(), facts)
    return RunRecords(folder, beside=beside)


def finish(records: RunRecords, result: dict[str, Any]) -> None:
    """Write the result, and end the records of a successful run."""
    write_json(records.path / RESULT_FILE, result)
    records.finish()


class Trains(Protocol):
    """A model in training."""

    @property
    def config(self) -> Any:
        """Its options; `clip` is the maximum gradient norm, 0 for no limit."""
        ...

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        ...

    def rows(self) -> Iterator[dict[str, Any]]:
        """Update until the end of training; yield each update's log row."""
        ...


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The training loop of a run, with everything it needs."""

    trainer: Trains
    options: LearningOptions
    total: int  # updates of the whole run
    opening: str  # model, data and device; printed at the start
    stages: Stages
    pack: Callable[[], dict[str, Any]]  # a checkpoint's payload; all learners must call it
    # May add measurements to an update's row. Returns a score if the weights should be saved with
    # it; they are the best if no earlier score is as high.
    measure: Callable[[dict[str, Any], ProgressDisplay], float | None]
    records: RunRecords | None  # None: another learner, the first one, writes them
    replicas: Replicas = field(default_factory=Replicas)

    def run(self) -> int:
        """Train to the end, saving at intervals; return the exit code, 0 unless a signal came.

        Raises:
            UserError: a loss, gradient or weight is not finite, or a file cannot be written; one
                line.
        """

        def payload() -> dict[str, Any]:
            return self.pack() | {"git": code_revision()}

        first = None if self.trainer.updates else payload()
        if self.records:
            self.records.begin(self.trainer.updates, first)
            print(f"{self.opening}\nrun folder: {self.records.path}", flush=True)
        try:
            self._train(payload)
        except Interrupted as interrupted:
            if self.records:
                self.records.finish(successful=False)
                resume = ("--resume", self.records.path, *core_arguments(self.options.core))
                command = typed_command(self.options.command, *resume)
                print(f"saved at update {self.trainer.updates:,}; to resume:\n  {command}")
            return 128 + interrupted.signal_number
        except BaseException:
            if self.records:
                self.records.close()
            raise
        return 0

    def _train(self, payload: Callable[[], dict[str, Any]]) -> None:
        stop, last_save, held_out = StopRequests(), time.monotonic(), {}
        patience = self.options.checkpoint_minutes * 60
        display = ProgressDisplay(self.total, self.trainer.updates, unit="updates")
        shown: AbstractContextManager[object] = display if self.records else nullcontext()
        rows = self._rows()
        with stop, shown, closing(rows):
            for row in rows:
                self._check_finite(row)
                score = self.measure(row, display)
                if self.records:
                    with self.stages("log"):
                        self.records.log(row)
                        held_out |= {name: row[name] for name in row if name.startswith("valid_")}
                        display.update(self.trainer.updates, row | held_out)
                is_due = score is not None or time.monotonic() - last_save > patience
                is_due, signal_number = self._agree(is_due, stop)
                if is_due:
                    last_save = time.monotonic()
                    with self.stages("save"):
                        content = payload()
                        self._check_weights(content["model_state_dict"])
                        self._save(content, score, must=score is not None or signal_number > 0)
                if signal_number:
                    raise Interrupted(signal_number)

    def _rows(self) -> Iterator[dict[str, Any]]:
        rows = _timed(self.trainer.rows())
        if self.options.profile and self.records:
            return profiled(rows, (self.stages,), self.records.path)
        return rows

    def _check_finite(self, row: Mapping[str, Any]) -> None:
        """Raise a one-line `UserError` with a remedy for a non-finite loss or gradient.

        Such an update may produce non-finite weights, so call this before anything is saved.
        """
        for name, what in (("total_loss", "loss"), ("gradient_norm", "gradient's norm")):
            if not math.isfinite(row[name]):
                raise self._diverged(
                    f"the {what} became {row[name]} at update {self.trainer.updates}"
                )

    def _check_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Raise a one-line `UserError` with a remedy for non-finite weights."""
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise self._diverged(f"update {self.trainer.updates} gave non-finite weights")

    def _diverged(self, what: str) -> UserError:
        model, clip = self.options.model(), self.trainer.config.clip
        grows = growth(model.core, **dict(model.core_options))
        less = f"lower --learning-rate, or --clip below {clip:g}"
        remedy = less if clip else "lower --learning-rate, or set --clip"
        return UserError(f"{what}: {f'{grows}; else ' if grows else ''}{remedy}")

    def _agree(self, is_due: bool, stop: StopRequests) -> tuple[bool, int]:
        """Return whether to save, and the received signal or 0; the same in all learners.

        The first learner decides when a checkpoint is due; a signal to any learner stops all.
        """
        number = 0
        try:
            stop.check()
        except Interrupted as interrupted:
            number = interrupted.signal_number
        told = torch.tensor([float(is_due and self.replicas.leads), float(number > 0)])
        self.replicas.sum([told])
        is_due, is_stopped = (told > 0).tolist()
        if is_stopped:
            number = number or signal.SIGTERM
        return is_due or is_stopped, number

    def _save(self, payload: dict[str, Any], score: float | None, must: bool) -> None:
        """Write a checkpoint; on failure, raise if it `must` be written, otherwise warn."""
        if self.records:
            save = partial(self.records.checkpoints.save, payload, self.trainer.updates, score)
            save() if must else save_or_warn(save)


def _timed(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows, each with the positions learned per second."""
    start = time.monotonic()
    for row in rows:
        now = time.monotonic()
        yield row | {"positions_per_second": row["positions"] / (now - start)}
        start = time.monotonic()


def seconds_of(path: Path) -> float:
    """Return the seconds spent in updates, from the log, over all parts of a run.

    Sequence tasks validate within updates; the validation of language models is excluded.
    """
    logs = read_logs(path)
    rates = zip(logs.get("positions", ()), logs.get("positions_per_second", ()), strict=True)
    return round(sum(positions / rate for positions, rate in rates if rate), 3)


def check_same_run(path: Path, different: list[str]) -> None:
    """Raise a `CheckpointError` if a checkpoint's options differ from its run's.

    Args:
        path: the checkpoint.
        different: names of options that differ.
    """
    if different:
        raise CheckpointError(
            f"{path} does not belong to the run in meta.json, which has "
            f"{', '.join(different)}: restore the run's own checkpoint"
        )
