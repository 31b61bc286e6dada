"""Export of a trained agent: weights, configuration, and a model card.

FOLDER/model.safetensors    weights
FOLDER/config.json          options, shapes, training steps
FOLDER/README.md            model card, in the form that model hubs read
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fastweights.host.atomic_files import replacing, write_bytes
from fastweights.host.errors import describe_os_error
from fastweights.host.json_files import read_object
from fastweights.records import CheckpointError

FORMAT = "fastweights-agent"
VERSION = 1
_KEPT = ("flags", "network", "step", "git")  # exported keys of a checkpoint, besides its weights


def is_export(folder: Path) -> bool:
    """Return whether `folder` holds an exported agent."""
    return weights_of(folder).exists()


def weights_of(folder: Path) -> Path:
    """Return the file with an exported agent's weights."""
    return folder / "model.safetensors"


def write_export(payload: dict[str, Any], folder: Path, card: str) -> None:
    """Write the agent of a checkpoint's `payload` into `folder`, which is made if missing.

    `card`: the model card in Markdown. Raises `OSError` if a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: w.detach().cpu().contiguous() for name, w in _weights(payload).items()}
    config = {"format": FORMAT, "version": VERSION} | {name: payload[name] for name in _KEPT}
    with replacing(weights_of(folder)) as partial:
        save_file(weights, partial, metadata={"format": "pt"})
    write_bytes(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write_bytes(folder / "README.md", card.encode())


def read_export(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the part of a checkpoint's payload that `write_export` wrote. Runs no code from it.

    Raises:
        CheckpointError: missing, damaged or foreign, in one line.
    """
    path = folder / "config.json"
    try:
        config = read_object(path)
        if (config["format"], config["version"]) != (FORMAT, VERSION):
            raise ValueError("it has another format or version")
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
