"""A trained agent in a checkpoint: what goes in, and how the network comes out again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agents.learner import Learner
from agents.network import Network
from launch.agent_export import is_export, read_export, weights_of
from launch.checkpoint_folder import CheckpointFolder, Found
from launch.checkpoints import CheckpointError, load, read
from launch.options import RunOptions
from launch.provenance import git_revision
from launch.torchbeast_model import is_torchbeast, translated


def pack(options: RunOptions, learner: Learner, stats: dict[str, Any]) -> dict[str, Any]:
    """Everything that a run needs to go on, as plain values under TorchBeast's names."""
    network, state = learner.network, learner.state_dict()
    return {
        "model_state_dict": network.state_dict(),
        "optimizer_state_dict": state["optimizer"],
        "scheduler_state_dict": state["schedule"],
        "flags": options.to_dict(),
        "network": {
            "frame_shape": list(network.config.frame_shape),
            "num_actions": network.config.num_actions,
        },
        "stats": stats,
        "rng": {"torch": torch.get_rng_state()},
        "git": git_revision(),
    }


@dataclass(frozen=True)
class SavedAgent:
    """A network as it was saved, and the run it comes from."""

    network: Network
    options: RunOptions
    payload: dict[str, Any]
    path: Path  # the file with the weights
    warnings: tuple[str, ...] = ()  # newer checkpoints that could not be used

    @property
    def step(self) -> int:
        """Agent steps it was trained for."""
        return self.payload["step"]

    @property
    def run(self) -> Path:
        """The run folder, or the file's own where it lies elsewhere."""
        folder = self.path.parent
        return folder.parent if folder.name == "checkpoints" else folder


def open_agent(
    path: Path, device: torch.device | str = "cpu", env: str | None = None
) -> SavedAgent:
    """Loads an agent, on `device`.

    `path`: a run folder (the newest usable checkpoint), a checkpoint, a folder that
    `agent_export` wrote, or TorchBeast's `model.tar` or the folder it lies in. `env`: the game of
    a file that does not say.

    Raises `CheckpointError`, one line, for anything else.
    """
    found = _find(Path(path).expanduser(), device, env)
    payload = found.payload
    try:
        options = RunOptions.from_dict(payload["flags"])
        shape = payload["network"]
        config = options.network(tuple(shape["frame_shape"]), shape["num_actions"])
        network = Network(config).to(device)
        network.load_state_dict(payload["model_state_dict"])
        int(payload["step"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"checkpoint {found.path} does not fit this version of the program ({reason}): "
            "check out the revision that its `git` entry names"
        ) from error
    return SavedAgent(network, options, payload, found.path, found.warnings)


def _find(path: Path, device: torch.device | str, env: str | None) -> Found:
    if is_export(path):
        return Found(weights_of(path), read_export(path, device), ())
    if path.is_dir():
        foreign = path / "model.tar"
        if (path / "checkpoints").exists() or not foreign.exists():
            return CheckpointFolder(path).latest(device)
        path = foreign  # our run folders hold more than that
    payload = read(path, device)
    if not is_torchbeast(payload):
        return Found(path, load(path, device), ())
    try:
        return Found(path, translated(payload, env), ())
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be imported from TorchBeast: {error}") from error
