"""A trained agent as others can take it: weights, what they are, and a card that says so.

FOLDER/model.safetensors    weights
FOLDER/config.json          options, shapes, training steps
FOLDER/README.md            model card, in the form that model hubs read
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from launch.atomic_files import replacing, write_bytes
from launch.checkpoints import CheckpointError
from launch.evaluation_file import Evaluation
from launch.failures import describe_os_error
from launch.json_files import read_object
from launch.markdown_table import markdown_table
from launch.score_summary import spread

FORMAT = "fastweights-agent"
VERSION = 1
_KEPT = ("flags", "network", "step", "git")  # of a checkpoint, beside its weights


def is_export(folder: Path) -> bool:
    """Whether `folder` holds an exported agent."""
    return weights_of(folder).exists()


def weights_of(folder: Path) -> Path:
    """The file with an exported agent's weights."""
    return folder / "model.safetensors"


def write_export(
    payload: dict[str, Any], folder: Path, evaluations: Iterable[Evaluation] = ()
) -> None:
    """Writes the agent of a checkpoint's `payload` into `folder`, made where it is missing.

    `evaluations`: of this agent, for the card. Raises `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: w.detach().cpu().contiguous() for name, w in _weights(payload).items()}
    config = {"format": FORMAT, "version": VERSION} | {name: payload[name] for name in _KEPT}
    with replacing(weights_of(folder)) as partial:
        save_file(weights, partial, metadata={"format": "pt"})
    write_bytes(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write_bytes(folder / "README.md", _card(payload, evaluations).encode())


def read_export(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `write_export` wrote, as far as a checkpoint's payload goes. Runs nothing it reads.

    Raises:
        CheckpointError: missing, damaged or foreign, in one line.
    """
    path = folder / "config.json"
    try:
        config = read_object(path)
        if (config["format"], config["version"]) != (FORMAT, VERSION):
            raise ValueError("its format or version is another")
        kept = {name: config[name] for name in _KEPT}
        path = weights_of(folder)
        return kept | {"model_state_dict": load_file(path, str(device))}
    except OSError as error:
        raise CheckpointError(f"cannot read the agent {describe_os_error(error)}") from error
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a fastweights export ({error}): export the agent again"
        ) from error


def _weights(payload: dict[str, Any]) -> dict[str, torch.Tensor]:
    return payload["model_state_dict"]


def _card(payload: dict[str, Any], evaluations: Iterable[Evaluation]) -> str:
    options = payload["flags"]
    parameters = sum(weight.numel() for weight in _weights(payload).values())
    tags = "".join(f"\n- {tag}" for tag in ("reinforcement-learning", "impala", options["core"]))
    scores = [_score(evaluation) for evaluation in evaluations]
    table = markdown_table(("protocol", "actions", "games", "score", "± over"), scores)
    return f"""---
library_name: fastweights
pipeline_tag: reinforcement-learning
tags:{tags}
---

# {options["core"]} on {options["env"]}

An IMPALA / V-trace agent with the memory `{options["core"]}`: {parameters / 1e6:.3f} M parameters,
{payload["step"]:,} agent steps of training, seed {options["seed"]}. `config.json` has every option.

## Scores

{table if scores else "None kept: this agent has not been evaluated."}

A score is the mean of the repeats' means of undiscounted, unclipped returns, ± a standard
deviation: of those means, or over the episodes where there was one repeat.

## Use

    python launch/evaluate.py PATH_TO_THIS_FOLDER
"""


def _score(evaluation: Evaluation) -> tuple[str, ...]:
    score = spread(evaluation, "score")
    unit = "a life" if evaluation.score == "life" else "a full game"
    games = f"{evaluation.repeats} x {len(evaluation.episodes) // evaluation.repeats}"
    return evaluation.protocol, evaluation.action_mode, games, f"{score} {unit}", score.over
