"""A run's measurements of its model: quick ones during training, and final ones."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.experiments.language_model.setting import Setting
from fastweights.host import ProgressDisplay, write_bytes
from fastweights.tasks.language_model import (
    LanguageModel,
    Measure,
    Sampling,
    Split,
    Tick,
    carried_loss,
    generate,
    mean_loss,
    sliding_loss,
)

HELD_OUT_COLUMNS = 32  # in measurements during training, not in results
SPLITS = ("valid", "test")


@dataclass(frozen=True, kw_only=True)
class EvaluationProtocol:
    """How a model reads a split: in windows, each with a fresh state, or with its state carried."""

    full_context: bool  # whether the state is carried
    window: int  # tokens per window, or tokens per call with full context
    stride: int  # distance between windows, in tokens
    at_once: int  # number of parallel windows
    columns: int = 1  # with full context: number of parallel pieces of the text

    def __str__(self) -> str:
        if self.full_context:
            columns = "one column" if self.columns == 1 else f"{self.columns} columns"
            return f"full context, {columns}"
        return f"windows of {self.window}, stride {self.stride}"

    def measure(
        self, model: LanguageModel, part: Split, tick: Tick = lambda count: None
    ) -> Measure:
        """Return the mean loss on a split; `tick` takes the number of new predictions."""
        if self.full_context:
            total = carried_loss(model, part.ids, self.window, self.columns, tick)
        else:
            total = sliding_loss(model, part.ids, self.window, self.stride, self.at_once, tick)
        return mean_loss(total, part)


@contextmanager
def shown_progress(total: int) -> Iterator[Tick]:
    """Show how many of `total` predictions are done; yield the function that counts them."""
    with ProgressDisplay(total, unit="tokens measured") as display:
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            done += count
            display.update(done, {})

        yield tick


def protocol_of(options: LanguageOptions) -> EvaluationProtocol:
    """Return the protocol of a run's results: full context, or windows of the span."""
    return EvaluationProtocol(
        full_context=options.trainer.full_context,
        window=options.trainer.span,
        stride=options.stride,
        at_once=options.at_once,
    )


def quickly(model: LanguageModel, setting: Setting) -> dict[str, float]:
    """Return a quick measurement on the validation split, with parallel windows or columns."""
    part, whole = setting.text.splits["valid"], protocol_of(setting.options)
    columns = min(HELD_OUT_COLUMNS, len(part.ids) - 1)
    with setting.precision.context():
        found = replace(whole, stride=whole.window, columns=columns).measure(model, part)
    measures = {name: getattr(found, name) for name in ("loss", "perplexity", "bits_per_byte")}
    return {f"valid_{name}": value for name, value in measures.items() if value is not None}


def both_splits(model: LanguageModel, setting: Setting) -> dict[str, Any]:
    """Return the measurements on validation and test split, and show progress."""
    protocol, parts = protocol_of(setting.options), setting.text.splits
    total = sum(len(parts[split].ids) - 1 for split in SPLITS)
    with shown_progress(total) as tick, setting.precision.context():
        found = {split: protocol.measure(model, parts[split], tick)._asdict() for split in SPLITS}
    how = {"evaluation": str(protocol), "unit": setting.text.vocabulary.kind}
    return found | how | {"precision": setting.precision.name}


def sample(model: LanguageModel, setting: Setting, update: int, path: Path) -> str:
    """Add a sample of the model's text to the file at `path`; return the sample.

    Samples of this and later updates predate a resumption of the run, and are replaced.
    """
    options, vocabulary = setting.options, setting.text.vocabulary
    generator = torch.Generator().manual_seed(options.seed + update)
    with setting.precision.context():
        tokens = generate(model, vocabulary.prompt("\n"), Sampling(), generator)
        text = vocabulary.text(islice(tokens, options.sample_length))
    written = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    earlier = _before(update, written)
    write_bytes(path, f"{earlier}--- update {update:,}\n{text}\n".encode(errors="replace"))
    return text


def _before(update: int, samples: str) -> str:
    """Return the part of `samples.txt` that belongs to earlier updates."""
    for head in re.finditer(r"^--- update ([\d,]+)$", samples, re.MULTILINE):
        if int(head[1].replace(",", "")) >= update:
            return samples[: head.start()]
    return samples


def said(result: dict[str, Any]) -> Iterator[str]:
    """Yield lines that describe a result."""
    for split in ("valid", "test"):
        one = Measure(**result[split])
        how = f"{one.predictions:,} predictions, {result['evaluation']}"
        yield f"{split}: {one.said(result['unit'])} ({how})"
