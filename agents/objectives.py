"""Objectives: how targets are estimated, and the policy loss.

An objective is an entry in `OBJECTIVES`. It defines how the value and policy targets follow from
the network's estimates, when they are computed, and how the policy loss follows from them. The
learner reduces, weights and minimises the losses of any objective. `learner_config.READ_BY` lists
the options that each objective uses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from fastweights.agents.gae import gae
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.losses import clipped_surrogate_loss, policy_gradient_loss
from fastweights.agents.vtrace import Targets, vtrace


class Estimates(NamedTuple):
    """Transitions with the network's current estimates."""

    log_pi: Float[Tensor, "T B"]  # log-probability of the action taken, with gradient
    log_mu: Float[Tensor, "T B"]  # log-probability under the acting policy
    value: Float[Tensor, "T B"]  # with gradient
    bootstrap_value: Float[Tensor, " B"]  # of the row after the last
    reward: Float[Tensor, "T B"]  # clipped; plus the bootstrap value where an episode was cut off
    discount: Float[Tensor, "T B"]  # of later rewards; 0 at an episode's end


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Targets and policy loss of one objective."""

    title: str  # in an exported agent's model card
    targets: Callable[[Estimates, LearnerConfig], Targets]
    policy_loss: Callable[[Estimates, Float[Tensor, "T B"], LearnerConfig], Float[Tensor, "T B"]]
    # True: targets are computed once, with the weights before the batch's first gradient step.
    # False: each pass recomputes them with the current weights.
    fixes_targets: bool
    clips: bool  # whether `clip_range` bounds the policy ratio


def _vtrace_targets(estimates: Estimates, config: LearnerConfig) -> Targets:
    return _vtrace(estimates, config, config.pg_rho_clip)


def _surrogate_vtrace_targets(estimates: Estimates, config: LearnerConfig) -> Targets:
    return _vtrace(estimates, config, None)


def _vtrace(estimates: Estimates, config: LearnerConfig, pg_rho_clip: float | None) -> Targets:
    return vtrace(
        log_rho=estimates.log_pi - estimates.log_mu,
        discount=estimates.discount,
        reward=estimates.reward,
        value=estimates.value,
        bootstrap_value=estimates.bootstrap_value,
        rho_clip=config.rho_clip,
        c_clip=config.c_clip,
        pg_rho_clip=pg_rho_clip,
    )


def _gae_targets(estimates: Estimates, config: LearnerConfig) -> Targets:
    return gae(
        discount=estimates.discount,
        reward=estimates.reward,
        value=estimates.value,
        bootstrap_value=estimates.bootstrap_value,
        gae_lambda=config.gae_lambda,
    )


def _policy_gradient(
    estimates: Estimates, advantages: Float[Tensor, "T B"], config: LearnerConfig
) -> Float[Tensor, "T B"]:
    return policy_gradient_loss(estimates.log_pi, advantages)


def _clipped_surrogate(
    estimates: Estimates, advantages: Float[Tensor, "T B"], config: LearnerConfig
) -> Float[Tensor, "T B"]:
    return clipped_surrogate_loss(
        estimates.log_pi - estimates.log_mu, advantages, config.clip_range
    )


OBJECTIVES: dict[str, Objective] = {
    # Espeholt et al. 2018.
    "vtrace": Objective(
        title="IMPALA / V-trace",
        targets=_vtrace_targets,
        policy_loss=_policy_gradient,
        fixes_targets=False,
        clips=False,
    ),
    # Schulman et al. 2017.
    "ppo": Objective(
        title="PPO",
        targets=_gae_targets,
        policy_loss=_clipped_surrogate,
        fixes_targets=True,
        clips=True,
    ),
    # As in RLlib's APPO and Sample Factory (Petrenko et al. 2020), but with fixed targets and
    # without a second importance weight in the advantages.
    "appo": Objective(
        title="APPO",
        targets=_surrogate_vtrace_targets,
        policy_loss=_clipped_surrogate,
        fixes_targets=True,
        clips=True,
    ),
}
