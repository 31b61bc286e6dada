"""Export of a language model: weights, vocabulary, configuration, and a model card.

FOLDER/model.safetensors    weights
FOLDER/config.json          options, updates, revision
FOLDER/vocabulary.json      the tokens, by their numbers
FOLDER/README.md            model card, in the form that model hubs read
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fastweights.evaluation.markdown_table import markdown_table
from fastweights.host.atomic_files import replacing, write_bytes
from fastweights.host.errors import describe_os_error
from fastweights.host.json_files import read_object
from fastweights.records import CheckpointError
from fastweights.tasks.language_model.vocabulary import Vocabulary

FORMAT = "fastweights-language-model"
VERSION = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
_KEPT = ("flags", "step", "git")  # exported keys of a checkpoint, besides its weights


def is_export(folder: Path) -> bool:
    """Return whether `folder` holds an export."""
    return (folder / WEIGHTS).exists()


def write_export(
    payload: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, results: Mapping[str, Any]
) -> None:
    """Write a checkpoint's model into `folder`, which is made if missing.

    `results`: the run's `result.json`, or nothing. Raises `OSError` if a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: weight.detach().cpu().contiguous()
        for name, weight in payload["model_state_dict"].items()
    }
    payload = {**payload, "flags": _without_folders(payload["flags"])}
    config = {"format": FORMAT, "version": VERSION} | {name: payload[name] for name in _KEPT}
    write_bytes(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    text = json.dumps(vocabulary.plain(), ensure_ascii=False)
    write_bytes(folder / "vocabulary.json", text.encode("utf-8", "surrogatepass"))
    write_bytes(folder / "README.md", model_card(payload, vocabulary, results).encode())
    with replacing(folder / WEIGHTS) as partial:  # last: it marks a complete export
        save_file(weights, partial, metadata={"format": "pt"})


def read_export(folder: Path) -> dict[str, Any]:
    """Return the part of a checkpoint's payload that `write_export` wrote. Runs no code from it.

    Raises:
        CheckpointError: missing, damaged or foreign, in one line.
    """
    path = folder / CONFIG
    try:
        config = read_object(path)
        if (config["format"], config["version"]) != (FORMAT, VERSION):
            raise ValueError("it has another format or version")
        kept: dict[str, Any] = {name: config[name] for name in _KEPT}
        path = folder / WEIGHTS
        weights: dict[str, torch.Tensor] = load_file(path)
        return kept | {"model_state_dict": weights}
    except OSError as error:
        raise CheckpointError(f"cannot read the model {describe_os_error(error)}") from error
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is damaged or not an exported language model ({error}): export it again"
        ) from error


def _without_folders(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags without local folders of runs, caches and texts."""
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
            f"{results[split]['bits_per_byte']:.3f}",
        )
        for split in ("valid", "test")
        if split in results
    ]
    head = ("split", "evaluation", f"perplexity of {vocabulary.kind}", "bits a byte")
    return f"""---
library_name: fastweights
pipeline_tag: text-generation
tags:
- language-model
- {options["core"]}
---

# {options["core"]} language model

A language model with the memory `{options["core"]}`: {parameters / 1e6:.3f} M parameters,
{payload["step"]:,} updates of training, seed {options["seed"]}, over {vocabulary.size:,}
{vocabulary.kind}. Text: {options.get("data")}. `config.json` has every option.

## Results

{markdown_table(head, rows) if rows else "None kept: the run has not ended."}

## Use

    fastweights wikitext103 generate PATH_TO_THIS_FOLDER --prompt "..."
"""
