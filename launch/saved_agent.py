"""A trained agent in a checkpoint: what goes in, and how the network comes out again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agents.learner import Learner
from agents.network import Network
from launch.checkpoint_folder import CheckpointFolder
from launch.checkpoints import CheckpointError, load
from launch.options import RunOptions
from launch.provenance import git_revision


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
    path: Path  # the checkpoint file
    warnings: tuple[str, ...] = ()  # newer checkpoints that could not be used

    @property
    def step(self) -> int:
        """Agent steps it was trained for."""
        return self.payload["step"]

    @property
    def run(self) -> Path:
        """The run folder, or the checkpoint's own where it lies elsewhere."""
        folder = self.path.parent
        return folder.parent if folder.name == "checkpoints" else folder


def open_agent(path: Path, device: torch.device | str = "cpu") -> SavedAgent:
    """Loads the newest usable checkpoint of a run folder, or one checkpoint file.

    Raises `CheckpointError`, one line, for anything that is not a whole checkpoint of ours.
    """
    path, warnings = Path(path).expanduser(), ()
    if path.is_dir():
        path, payload, warnings = CheckpointFolder(path).latest(device)
    else:
        payload = load(path, device)
    try:
        options = RunOptions.from_dict(payload["flags"])
        shape = payload["network"]
        config = options.network(tuple(shape["frame_shape"]), shape["num_actions"])
        network = Network(config).to(device)
        network.load_state_dict(payload["model_state_dict"])
        int(payload["step"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"checkpoint {path} does not fit this version of the program ({reason}): "
            "check out the revision that its `git` entry names"
        ) from error
    return SavedAgent(network, options, payload, path, warnings)
