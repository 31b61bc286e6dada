"""The learner: V-trace actor-critic with RMSprop, as published for IMPALA.

Losses are summed over time and batch by default, so the learning rate belongs to a batch size.
Learners that share a batch sum their gradients and make the update that one would have made.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fastweights.agents.losses import (
    baseline_loss,
    entropy_loss,
    log_probability,
    policy_gradient_loss,
)
from fastweights.agents.network import Network
from fastweights.agents.replicas import Alone, Replicas
from fastweights.agents.rollout import Rollout, align
from fastweights.agents.vtrace import vtrace


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Defaults: Espeholt et al. 2018, appendix G, as used by Irie et al. 2021, appendix C."""

    total_steps: int = 200_000_000  # Agent steps to train for; the learning rate reaches 0 there.
    learning_rate: float = 6e-4  # RMSprop's, at the start.
    alpha: float = 0.99  # RMSprop's smoothing of squared gradients, per update.
    epsilon: float = 0.01  # RMSprop's, added to the root of the squared gradients.
    momentum: float = 0.0  # RMSprop's.
    grad_norm_clipping: float = 40.0  # Largest Euclidean norm of the whole gradient.
    discounting: float = 0.99  # Of rewards, per agent step.
    baseline_cost: float = 0.5  # Weight of the value loss.
    entropy_cost: float = 0.01  # Weight of the policy's entropy, in nats.
    # To [-1, 1], of what is learned from; what the core is shown always is.
    reward_clipping: Literal["abs_one", "none"] = "abs_one"
    reduction: Literal["sum", "mean"] = "sum"  # Of losses, over time and batch.
    rho_clip: float = 1.0  # V-trace: of importance weights in the value targets' differences.
    c_clip: float = 1.0  # V-trace: of importance weights carried back in time.
    pg_rho_clip: float = 1.0  # V-trace: of importance weights in the policy gradient.
    # Streams a backward pass, the same gradient with less memory; 0: all; None: 4 on a CPU, where
    # they stay in its caches, and all elsewhere.
    micro_batch: int | None = None

    def streams_at_once(self, batch: int, device: torch.device) -> int:
        """Those of `batch` that go through the network together."""
        asked = self.micro_batch
        if asked is None:
            asked = 4 if device.type == "cpu" else 0
        return asked or batch


class Learner:
    """Owns the optimiser and the schedule of one network.

    `stage(name)` is entered around each micro-batch's gradient, the sum over learners and the
    optimiser's step; one that raises before the last leaves weights and counters as they were.
    `replicas` learn the same network from the rest of each batch.
    """

    def __init__(
        self,
        network: Network,
        config: LearnerConfig,
        stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
        replicas: Replicas | None = None,
    ):
        self.network, self.config, self.stage = network, config, stage
        self.replicas = replicas or Alone()
        self.optimizer = torch.optim.RMSprop(
            network.parameters(),
            lr=config.learning_rate,
            alpha=config.alpha,
            eps=config.epsilon,
            momentum=config.momentum,
        )
        self.steps = 0  # agent steps of all batches
        self.updates = 0  # steps of the optimiser
        self.refused = 0  # batches whose loss or gradient was not finite
        self.refused_in_a_row = 0

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """One gradient step on T x B transitions; returns scalar tensors for the logs.

        B is this learner's share of the batch. Losses are logged as they enter the total: reduced,
        weighted by their costs, over all learners. A loss or gradient that is not finite changes no
        weight: the batch is used up and counted as refused.
        """
        length, batch = rollout.action.shape
        steps = length * batch * self.replicas.count
        self._anneal()
        self.optimizer.zero_grad(set_to_none=True)
        width = self.config.streams_at_once(batch, rollout.action.device)
        parts = []
        for start in range(0, batch, width):
            with self.stage("gradient"):
                losses = self._losses(rollout.columns(start, min(start + width, batch)))
                scale = 1.0 if self.config.reduction == "sum" else 1.0 / steps
                losses = {name: loss * scale for name, loss in losses.items()}
                losses["total_loss"].backward()
                parts.append({name: loss.detach() for name, loss in losses.items()})
        sums = {name: torch.stack([part[name] for part in parts]).sum() for name in parts[0]}
        parameters = [p for p in self.network.parameters() if p.grad is not None]
        with self.stage("exchange"):
            self.replicas.sum([*(p.grad for p in parameters), *sums.values()])
        with self.stage("optimise"):
            norm = nn.utils.clip_grad_norm_(parameters, self.config.grad_norm_clipping)
            self._step(is_finite=bool(torch.isfinite(norm + sums["total_loss"])))
            self.steps += steps
            return sums | {"gradient_norm": norm}

    def _step(self, is_finite: bool) -> None:
        """Moves the weights by the gradient, or refuses to."""
        if is_finite:
            self.optimizer.step()
            self.updates += 1
            self.refused_in_a_row = 0
        else:
            self.refused += 1
            self.refused_in_a_row += 1

    def _losses(self, rollout: Rollout) -> dict[str, Tensor]:
        config, length = self.config, rollout.action.shape[0]
        transitions = align(rollout, config.discounting)
        output, _ = self.network(
            rollout.frame,
            rollout.reward,
            rollout.is_first,
            rollout.last_action,
            rollout.initial_state,
        )
        logits, value = output.policy_logits[:length], output.value[:length]
        reward = transitions.reward
        if config.reward_clipping == "abs_one":
            reward = reward.clamp(-1, 1)
        log_rho = log_probability(logits, transitions.action) - log_probability(
            transitions.policy_logits, transitions.action
        )
        targets = vtrace(
            log_rho=log_rho,
            discount=transitions.discount,
            reward=reward,
            value=value,
            bootstrap_value=output.value[length],
            rho_clip=config.rho_clip,
            c_clip=config.c_clip,
            pg_rho_clip=config.pg_rho_clip,
        )
        policy = policy_gradient_loss(logits, transitions.action, targets.advantages).sum()
        baseline = config.baseline_cost * baseline_loss(value, targets.value_targets).sum()
        entropy = config.entropy_cost * entropy_loss(logits).sum()
        return {
            "total_loss": policy + baseline + entropy,
            "pg_loss": policy,
            "baseline_loss": baseline,
            "entropy_loss": entropy,
        }

    def learning_rate(self) -> float:
        """The rate of the next update: linear from the configured one to 0 at `total_steps`."""
        done = min(self.steps / self.config.total_steps, 1.0)
        return self.config.learning_rate * (1.0 - done)

    def _anneal(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()

    def state_dict(self) -> dict[str, Any]:
        """Optimiser state and counters; the network's parameters are saved by their owner."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": {"steps": self.steps, "updates": self.updates, "refused": self.refused},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` was taken."""
        self.optimizer.load_state_dict(state["optimizer"])
        schedule = state["schedule"]
        self.steps, self.updates = schedule["steps"], schedule["updates"]
        self.refused = schedule.get("refused", 0)  # older checkpoints do not count them
