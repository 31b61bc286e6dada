"""The learner's options, each with its unit and source, and their dependence on each other."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_origin, get_type_hints

import torch

from fastweights.host import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, check_range, one_of

# Options that only some choices use: option -> choice -> values that use it.
READ_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "objective": {
        "vtrace": ("rho_clip", "c_clip", "pg_rho_clip"),
        "ppo": ("clip_range", "gae_lambda", "normalize_advantages", "normalize_values"),
        "appo": ("rho_clip", "c_clip", "clip_range", "normalize_advantages", "normalize_values"),
    },
    "optimizer": {
        "rmsprop": ("alpha", "epsilon", "momentum"),
        "adam": ("adam_beta1", "adam_beta2", "adam_epsilon"),
    },
}

# Range of each number (`host/ranges.py`).
RANGES = {
    **dict.fromkeys(("total_steps", "epochs", "minibatches"), COUNT),
    **dict.fromkeys(("alpha", "momentum", "gae_lambda", "discounting"), SHARE),
    **dict.fromkeys(("learning_rate", "final_learning_rate", "baseline_cost"), NOT_NEGATIVE),
    **dict.fromkeys(("epsilon", "adam_epsilon"), NOT_NEGATIVE),
    **dict.fromkeys(("adam_beta1", "adam_beta2"), "[0, 1)"),
    **dict.fromkeys(("rho_clip", "c_clip", "pg_rho_clip"), "[0, inf]"),
    "kl_limit": POSITIVE,
    "huber_delta": "[1e-6, inf)",
    "grad_norm_clipping": "(0, inf]",
    "clip_range": "(0, 1)",
    "entropy_cost": "(-inf, inf)",
    "micro_batch": NOT_NEGATIVE,
}


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Defaults: Espeholt et al. 2018, appendix G, as used by Irie et al. 2021, appendix C.

    Those of PPO and APPO (`clip_range`, `gae_lambda`): Schulman et al. 2017, for Atari. Those of
    Adam: Kingma & Ba 2015, with the `adam_epsilon` of PPO's first implementation (Huang et al.
    2022). `kl_limit` and the shortening of steps are our own.
    """

    total_steps: int = 200_000_000  # Number of agent steps.
    # Policy and value losses: vtrace (V-trace actor-critic, as published), ppo (clipped surrogate
    # with generalised advantages) or appo (clipped surrogate with V-trace targets).
    objective: Literal["vtrace", "ppo", "appo"] = "vtrace"
    epochs: int = 1  # Number of passes over each batch.
    minibatches: int = 1  # Number of minibatches of whole streams per pass, one gradient step each.
    # Maximum mean KL divergence between the acting and the learned policy, in nats. Above it, the
    # reuse of a batch stops; a first step that exceeds it is shortened. None: no limit.
    kl_limit: float | None = None
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"  # Optimisation algorithm.
    learning_rate: float = 6e-4  # Initial learning rate.
    # Learning rate at --total-steps; it is linear in between. If equal to --learning-rate, a
    # resumed run may have more --total-steps.
    final_learning_rate: float = 0.0
    alpha: float = 0.99  # RMSprop: decay rate of the mean squared gradient.
    epsilon: float = 0.01  # RMSprop: constant added to the root of the mean square.
    momentum: float = 0.0  # RMSprop: momentum, the fraction of the last step added to the next.
    adam_beta1: float = 0.9  # Adam: decay rate of the mean gradient.
    adam_beta2: float = 0.999  # Adam: decay rate of the mean squared gradient.
    adam_epsilon: float = 1e-5  # Adam: constant added to the root of the mean square.
    grad_norm_clipping: float = 40.0  # Maximum Euclidean norm of the whole gradient.
    discounting: float = 0.99  # Discount factor of rewards per agent step.
    baseline_cost: float = 0.5  # Weight of the value loss.
    # Value error, in the value head's unit, beyond which the value loss is linear instead of
    # quadratic (Huber 1964), so that rare large returns do not dominate the gradient; None: never.
    huber_delta: float | None = None
    entropy_cost: float = 0.01  # Weight of the policy's entropy (in nats) in the loss.
    # Clipping of rewards in the losses: abs_one (to [-1, 1]) or none. The reward that the core
    # receives as input is always clipped.
    reward_clipping: Literal["abs_one", "none"] = "abs_one"
    reduction: Literal["sum", "mean"] = "sum"  # Reduction of losses over time and streams.
    rho_clip: float = 1.0  # V-trace: maximum importance weight in the temporal differences.
    c_clip: float = 1.0  # V-trace: maximum importance weight in the trace back through time.
    pg_rho_clip: float = 1.0  # V-trace: maximum importance weight in the policy gradient.
    clip_range: float = 0.1  # PPO, APPO: probability ratios are clipped to [1 - x, 1 + x].
    gae_lambda: float = 0.95  # PPO: lambda of generalised advantage estimation.
    # PPO, APPO: normalise the advantages of each batch to mean 0 and standard deviation 1.
    normalize_advantages: bool = False
    # PPO, APPO: scale the values' unit with the root mean square of the value targets (PopArt);
    # --value-scale is its lower bound.
    normalize_values: bool = False
    # Number of streams per backward pass; fewer need less memory for the same gradient. 0: all.
    # None: 4 on a CPU, so that they fit its caches, and all on other devices.
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            one_of(name, getattr(self, name), known)
        for name, allowed in RANGES.items():
            check_range(name, getattr(self, name), allowed)

    @property
    def reuses_batches(self) -> bool:
        """Whether there may be more than one gradient step on a batch."""
        return self.epochs * self.minibatches > 1

    @property
    def has_constant_rate(self) -> bool:
        """Whether the learning rate stays the same, so that a run can be lengthened."""
        return self.final_learning_rate == self.learning_rate

    def streams_at_once(self, batch: int, device: torch.device) -> int:
        """Return how many of `batch` streams to pass through the network at a time."""
        asked = self.micro_batch
        if asked is None:
            asked = 4 if device.type == "cpu" else 0
        return asked or batch


def unread(config: LearnerConfig) -> dict[str, tuple[str, list[str]]]:
    """Return non-default options that the chosen objective and optimiser do not use.

    The result maps option -> (choice, the values of the choice that use the option).
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for choice, readers in READ_BY.items():
        own = readers[getattr(config, choice)]
        for reader, names in readers.items():
            for name in names:
                if name not in own and getattr(config, name) != _DEFAULTS[name]:
                    found.setdefault(name, (choice, []))[1].append(reader)
    return found


def without_unread(config: LearnerConfig, typed: Collection[str]) -> LearnerConfig:
    """Return `config` with unused options reset to their defaults, except those in `typed`.

    This drops a preset's options for another objective, and its KL limit if batches are not
    reused. Options that the user typed stay, and the checks reject them.
    """
    useless = {*unread(config), *(() if config.reuses_batches else ("kl_limit",))}
    return replace(config, **{name: _DEFAULTS[name] for name in useless - {*typed}})


_CHOICES = {
    name: get_args(kind)
    for name, kind in get_type_hints(LearnerConfig).items()
    if get_origin(kind) is Literal
}
_DEFAULTS = {field.name: field.default for field in fields(LearnerConfig)}
