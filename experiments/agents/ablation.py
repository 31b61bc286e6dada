"""The arms of the ablation: the preset `quick`, and variants without one of its ingredients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastweights.training import RunOptions, preset

TOTAL_STEPS = 500_000  # agent steps of each arm


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A preset with changed options, and the purpose of the comparison."""

    reason: str  # one line
    preset: str = "quick"
    learner: Mapping[str, Any] = field(default_factory=dict)  # fields of `LearnerConfig`
    others: Mapping[str, Any] = field(default_factory=dict)  # fields of `RunOptions`

    def options(self, core: str) -> RunOptions:
        """Return all options of the arm."""
        options = preset(self.preset, core)
        learner = replace(options.learner, total_steps=TOTAL_STEPS, **self.learner)
        return replace(options, learner=learner, **self.others)


ARMS: dict[str, Arm] = {
    "quick": Arm(reason="The recipe that the others are compared with."),
    "appo": Arm(
        reason="V-trace targets instead of generalised advantages, with the same surrogate.",
        learner={"objective": "appo"},
    ),
    "no-reuse": Arm(
        reason="One gradient step per batch instead of up to four passes in minibatches.",
        learner={"epochs": 1, "minibatches": 1, "kl_limit": None},
    ),
    "no-kl-limit": Arm(
        reason="Always four passes over a batch, however far the policy has moved.",
        learner={"kl_limit": None},
    ),
    "rmsprop": Arm(
        reason="RMSprop with its published rate, smoothing and epsilon instead of Adam.",
        learner={"optimizer": "rmsprop", "learning_rate": 6e-4, "alpha": 0.99, "epsilon": 0.01},
    ),
    "raw-advantages": Arm(
        reason="Advantages without scaling to standard deviation 1.",
        learner={"normalize_advantages": False},
    ),
    "norm-stem": Arm(
        reason="The same two normalised convolutions, with filters that need not sum to 0.",
        others={"stem": "shallow_norm"},
    ),
    "paper": Arm(
        reason="The published recipe (V-trace, RMSprop, 32 streams of 50 steps) with this stem.",
        preset="paper",
        others={"stem": "shallow_centred"},
    ),
}
