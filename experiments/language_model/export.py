"""An exported language model: weights, vocabulary and model card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastweights.evaluation import markdown_table
from fastweights.experiments.language_model.evaluate import FOLDER
from fastweights.experiments.language_model.text import VOCABULARY
from fastweights.host import UserError
from fastweights.records import LANGUAGE_MODEL_EXPORT
from fastweights.tasks.language_model import Vocabulary, vocabulary_to_json


def write_export(
    payload: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, results: Mapping[str, Any]
) -> None:
    """Write a checkpoint's model to `folder`, which is created if missing.

    Args:
        results: the run's `result.json`, or nothing.

    Raises:
        UserError: the folder cannot be created, or has evaluations of other weights; one line.
        OSError: the files cannot be written.
    """
    if (folder / FOLDER).exists() and not LANGUAGE_MODEL_EXPORT.is_of(payload, folder):
        raise UserError(f"{folder / FOLDER} is of other weights: move it, or use a new folder")
    payload = {**payload, "flags": _without_folders(payload["flags"])}
    card, words = model_card(payload, vocabulary, results), vocabulary_to_json(vocabulary)
    LANGUAGE_MODEL_EXPORT.write(payload, folder, card, beside={VOCABULARY: words})


def _without_folders(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags without the local folders of runs, caches and texts."""
    name = Path(flags["data"]).name if flags.get("data") else None
    return {**flags, "data": name, "cache": None, "savedir": "runs"}


def model_card(
    payload: Mapping[str, Any], vocabulary: Vocabulary, results: Mapping[str, Any]
) -> str:
    """Return the model card, in Markdown."""
    options = payload["flags"]
    parameters = sum(weight.numel() for weight in payload["model_state_dict"].values())
    rows = [
        (
            split,
            results.get("evaluation", ""),
            f"{results[split]['perplexity']:.2f}",
            _bits(results[split]["bits_per_byte"]),
        )
        for split in ("valid", "test")
        if split in results
    ]
    head = ("split", "evaluation", f"perplexity of {vocabulary.kind}", "bits per byte")
    return f"""---
library_name: fastweights
pipeline_tag: text-generation
tags:
- language-model
- {options["core"]}
---

# {options["core"]} language model

A language model with the memory `{options["core"]}`: {parameters / 1e6:.3f} M parameters,
{payload["step"]:,} training updates, seed {options["seed"]}, vocabulary of {vocabulary.size:,}
{vocabulary.kind}. Text: {options.get("data")}. `config.json` lists all options.

## Results

{markdown_table(head, rows) if rows else "None: these weights have not been evaluated."}

## Use

    fastweights wikitext103 generate PATH_TO_THIS_FOLDER --prompt "..."
"""


def _bits(per_byte: float | None) -> str:
    return "none: rare words are `<unk>`" if per_byte is None else f"{per_byte:.3f}"
