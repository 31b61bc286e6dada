"""A run's measurements of its model: quick ones during training, and the final ones."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.experiments.language_model.setting import Setting
from fastweights.host import ProgressDisplay
from fastweights.tasks.language_model import (
    LanguageModel,
    Measure,
    Sampling,
    carried_loss,
    generate,
    mean_loss,
    sliding_loss,
)

HELD_OUT_COLUMNS = 32  # in measurements during training, not in results
SPLITS = ("valid", "test")


def measured(
    model: LanguageModel, setting: Setting, split: str, tick: Callable[[int], None]
) -> Measure:
    """Return a split's loss by the run's protocol: full context, or windows of the span."""
    options, part = setting.options, setting.text.splits[split]
    span = options.trainer.span
    with setting.precision():
        if options.trainer.full_context:
            total = carried_loss(model, part.ids, span, 1, tick)
        else:
            total = sliding_loss(model, part.ids, span, options.stride, options.at_once, tick)
    return mean_loss(total, part)


def evaluation_name(options: LanguageOptions) -> str:
    """Return the name of the protocol of `measured`."""
    if options.trainer.full_context:
        return "full context, one column"
    return f"windows of {options.trainer.span}, stride {options.stride}"


def quickly(model: LanguageModel, setting: Setting) -> dict[str, float]:
    """Return a quick measure of the validation split, by parallel windows or columns."""
    part, span = setting.text.splits["valid"], setting.options.trainer.span
    with setting.precision():
        if setting.options.trainer.full_context:
            columns = min(HELD_OUT_COLUMNS, len(part.ids) - 1)
            total = carried_loss(model, part.ids, span, columns)
        else:
            total = sliding_loss(model, part.ids, span, span, setting.options.at_once)
    found = mean_loss(total, part)
    names = ("loss", "perplexity", "bits_per_byte")
    return {f"valid_{name}": getattr(found, name) for name in names}


def both_splits(model: LanguageModel, setting: Setting) -> dict[str, Any]:
    """Return `measured` of validation and test split, with a display of progress."""
    sizes = {split: len(setting.text.splits[split].ids) - 1 for split in SPLITS}
    with ProgressDisplay(sum(sizes.values()), unit="tokens measured") as display:
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            done += count
            display.update(done, {})

        found = {split: measured(model, setting, split, tick)._asdict() for split in sizes}
    how = {"evaluation": evaluation_name(setting.options), "unit": setting.text.vocabulary.kind}
    return found | how | {"precision": setting.precision_name}


def sample(model: LanguageModel, setting: Setting, update: int, path: Path) -> str:
    """Append a sample of the model's text to the file at `path`; return the sample."""
    options, vocabulary = setting.options, setting.text.vocabulary
    generator = torch.Generator().manual_seed(options.seed + update)
    with setting.precision():
        tokens = generate(model, vocabulary.prompt("\n"), Sampling(), generator)
        text = vocabulary.text(islice(tokens, options.sample_length))
    with path.open("a", encoding="utf-8") as file:
        file.write(f"--- update {update:,}\n{text}\n")
    return text


def said(result: dict[str, Any]) -> Iterator[str]:
    """Yield lines about a result."""
    for split in ("valid", "test"):
        one = Measure(**result[split])
        how = f"{one.predictions:,} predictions, {result['evaluation']}"
        yield f"{split}: {one.said(result['unit'])} ({how})"
