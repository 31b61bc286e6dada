"""Trained models as files for other programs: weights, configuration and a model card.

FOLDER/model.safetensors    weights
FOLDER/config.json          format, version, and the other parts of the checkpoint that are kept
FOLDER/README.md            model card, in the format of model hubs
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from fastweights.host import (
    describe_os_error,
    make_folder,
    read_object,
    replacing,
    without_new_folders,
    write_bytes,
    write_json,
)
from fastweights.records.checkpoints import CheckpointError

VERSION = 1


class Export(NamedTuple):
    """A kind of exported model."""

    model: str  # in messages: `agent`
    format: str  # in config.json: `fastweights-agent`
    kept: tuple[str, ...]  # checkpoint keys stored in config.json; weights have their own file

    def check_folder(self, path: Path, flag: str = "") -> None:
        """Raise a one-line `ValueError` unless a model may be written to the folder at `path`.

        The folder may be missing, empty or an earlier export of such a model; other files are never
        overwritten. `flag` is the start of the message.
        """
        if path.exists() and not path.is_dir():
            raise ValueError(f"{flag}{path} is a file: give a folder")
        if path.is_dir() and any(path.iterdir()) and not self._is_own(path):
            raise ValueError(f"{flag}{path} contains other files: give a new folder")

    def write(
        self,
        payload: Mapping[str, Any],
        folder: Path,
        card: str,
        beside: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Write the model of a checkpoint's `payload` to `folder`, which is created if missing.

        Args:
            card: the model card, in Markdown.
            beside: contents of further files that the model needs, by name.

        Raises:
            UserError: the folder cannot be created; one line.
            OSError: the files cannot be written. A folder that was missing is removed again.
        """
        weights = payload["model_state_dict"].items()
        plain = {name: weight.detach().cpu().contiguous() for name, weight in weights}
        config = {"format": self.format, "version": VERSION}
        config |= {name: payload[name] for name in self.kept}
        # Weights make the folder an export: earlier weights must not meet this configuration.
        with without_new_folders(folder):
            make_folder(folder, "the export's folder")
            with replacing(exported_weights(folder)) as partial:
                partial.write_bytes(save(plain, metadata={"format": "pt"}))
                exported_weights(folder).unlink(missing_ok=True)
                write_json(folder / "config.json", config, indent=2)
                for name, content in {**beside, "README.md": card.encode()}.items():
                    write_bytes(folder / name, content)

    def read(self, folder: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Return the part of a checkpoint's payload that `write` stored. Runs no code from it.

        Raises:
            CheckpointError: a missing, damaged or foreign file; one line.
        """
        path = folder / "config.json"
        try:
            config = read_object(path)
            if (config["format"], config["version"]) != (self.format, VERSION):
                raise ValueError("it has another format or version")
            kept = {name: config[name] for name in self.kept}
            path = exported_weights(folder)
            return kept | {"model_state_dict": load_file(path, str(device))}
        except OSError as error:
            raise CheckpointError(
                f"cannot read the {self.model} {describe_os_error(error)}"
            ) from error
        except (KeyError, TypeError, ValueError, SafetensorError) as error:
            raise CheckpointError(
                f"{path} is damaged or not an exported {self.model} ({error}): "
                f"export the {self.model} again"
            ) from error

    def is_of(self, payload: Mapping[str, Any], folder: Path) -> bool:
        """Return whether `folder` holds an export of the weights in a checkpoint's `payload`."""
        try:
            there = self.read(folder)["model_state_dict"]
        except CheckpointError:
            return False
        ours = payload["model_state_dict"]
        equal = (torch.equal(there[name], weight.cpu()) for name, weight in ours.items())
        return there.keys() == ours.keys() and all(equal)

    def _is_own(self, folder: Path) -> bool:
        try:
            return read_object(folder / "config.json").get("format") == self.format
        except (OSError, ValueError):
            return False


def is_export(folder: Path) -> bool:
    """Return whether `folder` holds an exported model."""
    return exported_weights(folder).exists()


def exported_weights(folder: Path) -> Path:
    """Return the weights file of an exported model."""
    return folder / "model.safetensors"


AGENT_EXPORT = Export("agent", "fastweights-agent", ("flags", "network", "step", "git"))
LANGUAGE_MODEL_EXPORT = Export(
    "language model", "fastweights-language-model", ("flags", "step", "git")
)
