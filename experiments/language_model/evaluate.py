"""Evaluations of a trained model, stored with it: windows, full context, loss by position."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastweights.evaluation import save_figure
from fastweights.experiments.language_model.measuring import EvaluationProtocol, shown_progress
from fastweights.experiments.language_model.pictures import position_figure
from fastweights.experiments.language_model.saved import SavedModel
from fastweights.experiments.language_model.setting import Precision
from fastweights.experiments.language_model.text import check_fits, text_of
from fastweights.host import COUNT, UserError, check_ranges, flag, user_input, write_json
from fastweights.tasks.language_model import (
    Corpus,
    length_buckets,
    losses_by_position,
)

FOLDER = "evaluations"


@dataclass(frozen=True, kw_only=True)
class LanguageEvaluation:
    """Options of an evaluation."""

    protocol: Literal["auto", "sliding", "full-context", "both"] = "auto"
    """Protocol: sliding (windows, each with a fresh state), full-context (the state is carried
    through the text), both, or auto (as in the run's training)."""
    split: Literal["valid", "test", "both"] = "both"
    """Split to evaluate."""
    window: int | None = None
    """sliding: number of tokens per window (default: the run's span)."""
    stride: int = 1
    """sliding: number of tokens between windows; published: 1. The cost is window / stride passes
    over the text."""
    at_once: int = 32
    """sliding: number of windows computed in parallel; affects only speed."""
    columns: int = 1
    """full-context: number of parallel pieces of the text, each with a fresh state; published: 1.
    """
    by_position: bool = False
    """Also measure the loss by position in the context, and plot it."""
    context: int = 2048
    """by-position: number of tokens to read from a fresh state."""
    data: str | None = None
    """Another text with the same vocabulary (default: the run's)."""
    cache: Path | None = None
    """Folder that caches the text's token numbers (default: the run's)."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits to evaluate."""
        return ("valid", "test") if self.split == "both" else (self.split,)

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        check_ranges(self, COUNT, "stride", "at_once", "columns", "context", "window")

    def check_text(self, text: Corpus, window: int) -> None:
        """Raise a one-line `ValueError` if the text or the window is too short."""
        if self.stride > window:
            raise ValueError(f"--stride must lie in [1, {window}], the window, not {self.stride}")
        predictions = min(len(text.splits[split].ids) - 1 for split in self.splits)
        wanted = {"columns": self.columns, "window": self.window or 1}
        if self.by_position:
            wanted["context"] = self.context
        for name, size in wanted.items():
            if size > predictions:
                raise ValueError(
                    f"{flag(name)} {size:,} is more than the {predictions:,} predictions"
                )

    def check_used(self, protocols: Sequence[EvaluationProtocol]) -> None:
        """Raise a one-line `ValueError` for a given option that these protocols do not use."""
        slides = not all(protocol.full_context for protocol in protocols)
        carries = any(protocol.full_context for protocol in protocols)
        positions = self.by_position
        used = {
            ("columns", "--protocol full-context or both"): carries,
            ("stride", "--protocol sliding or both"): slides,
            ("window", "--protocol sliding or both, or with --by-position"): slides or positions,
            ("at_once", "--protocol sliding or both, or with --by-position"): slides or positions,
            ("context", "--by-position"): positions,
        }
        default = LanguageEvaluation()
        for (name, with_what), is_used in used.items():
            if not is_used and getattr(self, name) != getattr(default, name):
                raise ValueError(f"{flag(name)} has no effect here: it needs {with_what}")

    def protocols(self, window: int, full_context: bool) -> list[EvaluationProtocol]:
        """Return the protocols for a run that was trained with or without full context."""
        carried = {"sliding": [False], "full-context": [True], "both": [False, True]}
        how = {"window": window, "stride": self.stride, "at_once": self.at_once}
        return [
            EvaluationProtocol(full_context=is_carried, columns=self.columns, **how)
            for is_carried in carried.get(self.protocol, [full_context])
        ]


def evaluate_model(saved: SavedModel, asked: LanguageEvaluation) -> int:
    """Evaluate, print, and store the results in `evaluations` beside the weights.

    The precision is that of the run's options. Returns the exit code.

    Raises:
        UserError: the model or text cannot be evaluated as requested; one line.
    """
    options = saved.options
    changes = {"data": asked.data or options.data, "cache": asked.cache or options.cache}
    text = text_of(replace(options, **changes))
    check_fits(text, saved.vocabulary, saved.folder)
    if not asked.data and saved.payload.get("text", text.digest) != text.digest:
        raise UserError(
            f"{text.place} has changed since {saved.folder} was trained on it, so its splits may "
            "contain text of the others: to evaluate on it nevertheless, name it with --data"
        )
    window = asked.window or options.trainer.span
    protocols = asked.protocols(window, options.trainer.full_context)
    with user_input():
        asked.check_text(text, window)
        asked.check_used(protocols)
        device = saved.model.softmax.weight.device
        precision = Precision.chosen(options.precision, device)
    reached = [window, *([asked.context] if asked.by_position else [])]
    carries = any(protocol.full_context for protocol in protocols)
    is_beyond = carries or max(reached) > options.trainer.span
    if is_beyond and saved.model.config.positions != "none":
        print(f"note: the model was only trained on positions up to {options.trainer.span}")
    for protocol in protocols:
        for split in asked.splits:
            part = text.splits[split]
            with shown_progress(len(part.ids) - 1) as tick, precision.context():
                found = protocol.measure(saved.model, part, tick)
            measures = found.said(text.vocabulary.kind)
            print(f"{split}, {protocol}: {measures} ({found.predictions:,} predictions)")
            content = {"split": split, "protocol": str(protocol), "precision": precision.name}
            content |= found._asdict()
            _keep(saved, text, f"{split}_{protocol}", content)
    if asked.by_position:
        _by_position(saved, text, window, asked, precision)
    return 0


def _by_position(
    saved: SavedModel, text: Corpus, span: int, asked: LanguageEvaluation, precision: Precision
) -> None:
    curves = {}
    for split in asked.splits:
        ids = text.splits[split].ids
        with shown_progress(len(ids) - 1) as tick, precision.context():
            losses = losses_by_position(saved.model, ids, asked.context, span, asked.at_once, tick)
        curves[split] = list(length_buckets(losses))
        for first, last, loss in curves[split]:
            print(f"{split}, tokens {first} to {last}: perplexity {np.exp(loss):.2f}")
    content = {"buckets": curves, "trained_span": saved.options.trainer.span}
    content["precision"] = precision.name
    name = f"by_position_{asked.split}_{asked.context}"
    name += f"_window_{asked.window}" if asked.window else ""
    path = _keep(saved, text, name, content)
    picture = path.with_suffix(".png")
    title = f"{saved.options.core}, {saved.step:,} updates"
    save_figure(position_figure(curves, saved.options.trainer.span, title), picture)
    print(f"picture: {picture}")


def _keep(saved: SavedModel, text: Corpus, name: str, content: dict[str, Any]) -> Path:
    """Write an evaluation; the file name includes part of the text's digest."""
    facts = {"update": saved.step, "text": text.digest, "unit": text.vocabulary.kind}
    name = name.replace(", ", "_").replace(" ", "-")
    file = f"update_{saved.step:09d}_{name}_text-{text.digest[:8]}.json"
    path = saved.folder / FOLDER / file
    try:
        path.parent.mkdir(exist_ok=True)
        write_json(path, facts | content)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}): free disk space") from error
    return path
