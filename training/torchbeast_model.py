"""Agents trained with TorchBeast: PolyBeast's ResNet, feedforward or with LSTM.

The network is the same as ours under other names (facebookresearch/torchbeast,
torchbeast/polybeast_learner.py, class Net), so its weights are copied one by one. The additions in
the published agents' fork, and MonoBeast's small network, are not supported.
"""

from dataclasses import fields
from typing import Any

from torch import Tensor

from fastweights.agents import LearnerConfig
from fastweights.training.options import RunOptions

_FRAME_SHAPE = [4, 84, 84]
_LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def is_torchbeast(payload: dict[Any, Any]) -> bool:
    """Return whether a file's content looks like TorchBeast's `model.tar`."""
    return {"model_state_dict", "flags"} <= set(payload) and "format" not in payload


def translated(payload: dict[Any, Any], env: str | None) -> dict[str, Any]:
    """Return a TorchBeast checkpoint in our format, as far as needed for playing.

    `env`: the game, for files that do not name it, such as PolyBeast's.

    Raises:
        ValueError: another network, no game, or not a TorchBeast checkpoint.
    """
    weights, flags, stats = (payload.get(n) for n in ("model_state_dict", "flags", "stats"))
    if not all(isinstance(part, dict) for part in (weights, flags)):
        raise ValueError("model_state_dict and flags must be dicts")
    names = _names(has_lstm="core.weight_hh_l0" in weights)
    if set(weights) != set(names) or not all(isinstance(w, Tensor) for w in weights.values()):
        odd = ", ".join(sorted(map(str, set(weights) ^ set(names)))[:3])
        raise ValueError(f"its network is not PolyBeast's ResNet (it differs in {odd}, ...)")
    game = env or flags.get("env")
    if not isinstance(game, str):
        raise ValueError("it does not name its game: add --env GAME")
    width = weights["core.bias_hh_l0"].numel() // 4 if "core.bias_hh_l0" in weights else None
    plain = RunOptions(
        env=game,
        core="lstm" if width else "feedforward",
        core_width=width,
        protocol="published",
        stem="resnet",
        precision="float32",
    ).to_dict()
    del plain["seed"]  # the file does not have it
    return {
        "model_state_dict": {names[name]: weight for name, weight in weights.items()},
        "flags": plain | _learner_flags(flags),
        "network": {"frame_shape": _FRAME_SHAPE, "num_actions": weights["policy.bias"].numel()},
        "step": _steps(stats),
        "git": None,
    }


def _names(has_lstm: bool) -> dict[str, str]:
    """Return our name for each of TorchBeast's weights."""
    modules = {"fc": "stem.project", "policy": "policy", "baseline": "value"}
    for stage in range(3):
        modules[f"feat_convs.{stage}.0"] = f"stem.convolutions.{stage}.0"
        for unit in (1, 2):
            ours = f"stem.convolutions.{stage}.{unit + 1}"
            modules[f"resnet{unit}.{stage}.1"] = f"{ours}.first"
            modules[f"resnet{unit}.{stage}.3"] = f"{ours}.second"
    names = {
        f"{theirs}.{part}": f"{ours}.{part}"
        for theirs, ours in modules.items()
        for part in ("weight", "bias")
    }
    lstm = {f"core.{name}_l0": f"core.cell.{name}" for name in _LSTM}
    return names | lstm if has_lstm else names


def _steps(stats: Any) -> int:
    """Return the agent steps of the training; 0 if the file does not have them."""
    step = stats.get("step", 0) if isinstance(stats, dict) else 0
    return step if isinstance(step, int) else 0


def _learner_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the training options that have the same names in both programs."""
    shared = {f.name for f in fields(LearnerConfig)} | {"batch_size", "unroll_length"}
    return {n: flags[n] for n in shared & set(flags) if isinstance(flags[n], int | float)}
