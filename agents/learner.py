"""The learner: trains one network on batches of rollouts, with optimiser and rate schedule.

The objective (`agents/objectives.py`) defines targets and losses. The learner uses a batch once, as
published for IMPALA, or several times in minibatches of whole streams. Learners that share a batch
sum their gradients and make the same steps as a single learner.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.losses import baseline_loss, entropy_loss, log_probability
from fastweights.agents.minibatches import deals
from fastweights.agents.network import Network
from fastweights.agents.objectives import OBJECTIVES, Estimates
from fastweights.agents.replicas import Alone, Replicas
from fastweights.agents.rollout import Rollout, align
from fastweights.agents.vtrace import Targets

LOSSES = ("total_loss", "pg_loss", "baseline_loss", "entropy_loss")
_COUNTERS = ("steps", "updates", "refused", "refused_in_a_row")
_TINY = 1e-8  # added to the advantages' standard deviation
_FOLLOW = 0.1  # weight of a batch in the moving mean of squared value targets


class _Batch(NamedTuple):
    """A batch or part of its streams, with targets if the objective fixes them."""

    rollout: Rollout
    targets: Targets | None

    def columns(self, start: int, stop: int) -> "_Batch":
        targets = self.targets and Targets(*(t[:, start:stop] for t in self.targets))
        return _Batch(self.rollout.columns(start, stop), targets)

    def select(self, streams: Tensor) -> "_Batch":
        streams = streams.to(self.rollout.action.device)
        targets = self.targets and Targets(*(t[:, streams] for t in self.targets))
        return _Batch(self.rollout.select(streams), targets)


class _Reuse(NamedTuple):
    """The gradient passes over a batch."""

    sums: list[dict[str, Tensor]]  # of the passes whose gradients were used or refused
    steps: float  # a shortened one counts as its fraction
    refused: bool  # the last pass was not finite
    last: dict[str, Tensor]  # sums of the last pass, which may have ended the reuse


class Learner:
    """The optimiser and the learning-rate schedule of one network.

    Args:
        network: the network to train.
        config: the options.
        stage: `stage(name)` is entered around each micro-batch's gradient, the sum over learners
            and the optimiser's step.
        replicas: learners that train the same network on the rest of each batch.
        seed: seed for the distribution of streams over minibatches.

    Raises:
        ValueError: values are to be normalised, but the network has a fixed unit.
    """

    def __init__(
        self,
        network: Network,
        config: LearnerConfig,
        stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
        replicas: Replicas | None = None,
        seed: int = 0,
    ):
        self.network, self.config, self.stage, self.seed = network, config, stage, seed
        self.replicas = replicas or Alone()
        self.objective = OBJECTIVES[config.objective]
        if config.normalize_values and not network.value.normalize:
            raise ValueError("normalize_values must also be set in the network's configuration")
        self.optimizer = _optimizer(network, config)
        self.steps = 0  # agent steps of all batches
        self.updates = 0  # batches that changed the weights
        self.refused = 0  # batches with a non-finite loss or gradient
        self.refused_in_a_row = 0

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """Learn from T x B transitions; return scalar tensors for the logs.

        B is this learner's share of the batch. Logged values are means over the gradient steps and
        over all learners:

        - the losses as they enter the total (reduced, weighted by their costs);
        - `gradient_norm` before clipping; `entropy` of the policy in nats;
        - `approx_kl` between the acting and the learned policy, in nats, before each step;
        - `last_kl`: the last one measured, which may have ended the reuse of the batch;
        - `clip_fraction`: fraction of ratios beyond the clip range;
        - `explained_variance` of the value targets, in the first pass;
        - `value_target_rms`: their root mean square, in discounted clipped rewards;
        - `gradient_steps`: their number; a step shortened by `kl_limit` counts as its fraction.

        A non-finite loss or gradient causes no step: the rest of the batch is skipped, and the
        batch counts as refused. (If the value targets were finite, the unit of values has followed
        them, which changes no value.) If a stage raises, weights, optimiser and counters are as
        they were before the batch.
        """
        length, streams = rollout.action.shape
        with self._all_or_nothing():
            self._anneal()
            reuse = self._learn(self._prepared(rollout))
        self.steps += length * streams * self.replicas.count
        self.updates += len(reuse.sums) > reuse.refused
        self.refused += reuse.refused
        self.refused_in_a_row = self.refused_in_a_row + 1 if reuse.refused else 0
        return self._logs(reuse)

    def _learn(self, batch: _Batch) -> _Reuse:
        limit, before = self.config.kl_limit, []
        if limit is not None:  # the copy to restore may have another unit of values
            before = [weight.detach().clone() for weight in self.network.parameters()]
        taken: list[dict[str, Tensor]] = []
        for minibatch in self._minibatches(batch):
            sums = self._gradient(minibatch)
            if taken and limit is not None and _mean_kl(sums) > limit:
                made = float(len(taken))
                if len(taken) == 1:
                    made = _share_within(limit, _mean_kl(taken[0]), _mean_kl(sums))
                    self._shorten(before, made)
                return _Reuse(taken, made, False, last=sums)
            taken.append(sums)
            with self.stage("optimise"):
                weights = self.network.parameters()
                norm = nn.utils.clip_grad_norm_(weights, self.config.grad_norm_clipping)
                sums["gradient_norm"] = norm
                if not bool(torch.isfinite(norm + sums["total_loss"])):
                    return _Reuse(taken, len(taken) - 1.0, True, last=sums)
                self.optimizer.step()
        return _Reuse(taken, float(len(taken)), False, last=taken[-1])

    def _minibatches(self, batch: _Batch) -> Iterator[_Batch]:
        """Yield the minibatches of every pass."""
        config, streams = self.config, batch.rollout.action.shape[1]
        if config.minibatches == 1:
            yield from itertools.repeat(batch, config.epochs)
            return
        if streams % config.minibatches:
            raise ValueError(
                f"{streams} streams cannot be divided into {config.minibatches} minibatches"
            )
        passes = deals(
            streams,
            config.minibatches,
            share=self.replicas.rank,
            of=self.replicas.count,
            seed=self.seed,
            steps=self.steps,
        )
        for _, dealt in zip(range(config.epochs), passes, strict=False):
            yield from map(batch.select, dealt)

    def _gradient(self, batch: _Batch) -> dict[str, Tensor]:
        """Compute the summed gradient of all learners' parts; return their summed statistics."""
        self.optimizer.zero_grad(set_to_none=True)
        length, streams = batch.rollout.action.shape
        scale = 1.0
        if self.config.reduction == "mean":
            scale = 1.0 / (length * streams * self.replicas.count)
        parts = []
        for part in self._micro_batches(batch):
            with self.stage("gradient"):
                sums = self._sums(part, scale)
                sums["total_loss"].backward()
                parts.append({name: value.detach() for name, value in sums.items()})
        sums = {name: torch.stack([part[name] for part in parts]).sum() for name in parts[0]}
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        with self.stage("exchange"):
            self.replicas.sum([*gradients, *sums.values()])
        return sums

    def _micro_batches(self, batch: _Batch) -> Iterator[_Batch]:
        streams = batch.rollout.action.shape[1]
        width = self.config.streams_at_once(streams, batch.rollout.action.device)
        for start in range(0, streams, width):
            yield batch.columns(start, min(start + width, streams))

    def _sums(self, batch: _Batch, scale: float) -> dict[str, Tensor]:
        """Return the reduced losses, and the sums behind the logs' other columns."""
        config, objective = self.config, self.objective
        estimates, logits = self.estimate(batch.rollout)
        targets = batch.targets or objective.targets(estimates, config)
        unit = self.network.value.scale
        policy = objective.policy_loss(estimates, targets.advantages, config).sum()
        values = baseline_loss(
            estimates.value / unit, targets.value_targets / unit, config.huber_delta
        )
        baseline = config.baseline_cost * values.sum()
        negative_entropy = entropy_loss(logits).sum()
        entropy = config.entropy_cost * negative_entropy
        losses = (policy + baseline + entropy, policy, baseline, entropy)
        reduced = {name: loss * scale for name, loss in zip(LOSSES, losses, strict=True)}
        moments = {"entropy": -negative_entropy.detach()} | self._moments(estimates, targets)
        return reduced | moments

    @torch.no_grad()
    def _moments(self, estimates: Estimates, targets: Targets) -> dict[str, Tensor]:
        log_ratio = estimates.log_pi - estimates.log_mu
        ratio = log_ratio.exp()
        # In float32 the squares of large values would hide a small variance.
        wide = torch.float32 if ratio.device.type == "mps" else torch.float64
        target = targets.value_targets.to(wide)
        error = target - estimates.value
        return {
            "count": torch.full_like(ratio, 1.0).sum(),
            "kl": (ratio - 1 - log_ratio).sum(),
            "clipped": ((ratio - 1).abs() > self.config.clip_range).to(ratio.dtype).sum(),
            "target": target.sum(),
            "target_squared": target.square().sum(),
            "error": error.sum(),
            "error_squared": error.square().sum(),
        }

    def estimate(self, rollout: Rollout) -> tuple[Estimates, Float[Tensor, "T B A"]]:
        """Return the network's estimates of the transitions, and its policy's logits."""
        output, _ = self.network(
            rollout.frame,
            rollout.reward,
            rollout.is_first,
            rollout.last_action,
            rollout.initial_state,
        )
        logits = output.policy_logits[: rollout.action.shape[0]]
        return self._estimates(rollout, logits, output.value), logits

    def _estimates(
        self, rollout: Rollout, logits: Float[Tensor, "T B A"], value: Float[Tensor, "T+1 B"]
    ) -> Estimates:
        transitions = align(rollout, self.config.discounting)
        reward = transitions.reward
        if self.config.reward_clipping == "abs_one":
            reward = reward.clamp(-1, 1)
        return Estimates(
            log_pi=log_probability(logits, transitions.action),
            log_mu=log_probability(transitions.policy_logits, transitions.action),
            value=value[:-1],
            bootstrap_value=value[-1],
            reward=reward + transitions.later,
            discount=transitions.discount,
        )

    @torch.no_grad()
    def _prepared(self, rollout: Rollout) -> _Batch:
        """Return the whole share of the batch, with its targets if the objective fixes them."""
        if not self.objective.fixes_targets:
            return _Batch(rollout, None)
        targets = self._targets(rollout)
        if self.config.normalize_values:
            self._follow(self._mean(targets.value_targets.square()))
        if self.config.normalize_advantages:
            targets = targets._replace(advantages=self._normalized(targets.advantages))
        return _Batch(rollout, targets)

    def _targets(self, rollout: Rollout) -> Targets:
        """Return the targets under the current weights.

        If the rollout contains values, these weights computed them and its policy.
        """
        if len(rollout.value):
            acting = self._estimates(rollout, rollout.policy_logits, rollout.value)
            return self.objective.targets(acting, self.config)
        parts = []
        for part in self._micro_batches(_Batch(rollout, None)):
            with self.stage("gradient"):
                estimates, _ = self.estimate(part.rollout)
                parts.append(self.objective.targets(estimates, self.config))
        return Targets(*(torch.cat(same, 1) for same in zip(*parts, strict=True)))

    def _normalized(self, advantages: Float[Tensor, "T B"]) -> Float[Tensor, "T B"]:
        """Return advantages with mean 0 and standard deviation 1 over all learners' parts."""
        centred = advantages - self._mean(advantages)
        return centred / (self._mean(centred.square()).sqrt() + _TINY)

    def _mean(self, values: Float[Tensor, "T B"]) -> Float[Tensor, ""]:
        """Return the mean over all learners' parts of the batch."""
        total = values.sum()
        with self.stage("exchange"):
            self.replicas.sum([total])
        return total / (values.numel() * self.replicas.count)

    def _follow(self, mean_square: Float[Tensor, ""]) -> None:
        """Let the unit of values follow their targets: first the mean, then a moving average."""
        if bool(mean_square.isfinite()):
            self.network.value.follow(mean_square, max(1 / (self.updates + 1), _FOLLOW))

    @torch.no_grad()
    def _shorten(self, before: Sequence[Tensor], share: float) -> None:
        """Go back to the fraction `share` of the change since the weights before the batch."""
        for weight, earlier in zip(self.network.parameters(), before, strict=True):
            weight.lerp_(earlier, 1 - share)

    def _logs(self, reuse: _Reuse) -> dict[str, Tensor]:
        def mean(name: str) -> Tensor:
            return torch.stack([sums[name] for sums in reuse.sums]).mean()

        first = reuse.sums[: self.config.minibatches]
        total = {name: sum(sums[name] for sums in first) for name in first[0]}
        variance = total["target_squared"] - total["target"].square() / total["count"]
        residual = total["error_squared"] - total["error"].square() / total["count"]
        logs = {name: mean(name) for name in (*LOSSES, "gradient_norm")}
        steps = total["count"] / len(first)  # agent steps of a minibatch
        logs["entropy"] = mean("entropy") / steps
        logs["approx_kl"] = mean("kl") / steps
        logs["last_kl"] = reuse.last["kl"] / steps
        if self.objective.clips:
            logs["clip_fraction"] = mean("clipped") / steps
        logs["explained_variance"] = 1 - residual / variance
        logs["value_target_rms"] = (total["target_squared"] / total["count"]).sqrt()
        return logs | {"gradient_steps": torch.tensor(reuse.steps, dtype=torch.float32)}

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore weights and optimiser if a batch with several steps is interrupted.

        A single gradient step with a fixed unit of values needs no copies.
        """
        if not self.config.reuses_batches and not self.config.normalize_values:
            yield
            return
        weights = {name: w.detach().clone() for name, w in self.network.state_dict().items()}
        optimizer = copy.deepcopy(self.optimizer.state_dict())
        try:
            yield
        except BaseException:
            self.network.load_state_dict(weights)
            self.optimizer.load_state_dict(optimizer)
            raise

    def learning_rate(self) -> float:
        """The next update's learning rate, linear in the steps until `total_steps`."""
        left = 1.0 - min(self.steps / self.config.total_steps, 1.0)
        final = self.config.final_learning_rate
        return final + (self.config.learning_rate - final) * left

    def _anneal(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()

    def state_dict(self) -> dict[str, Any]:
        """Return optimiser state and counters; whoever owns the network saves its parameters."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": {name: getattr(self, name) for name in _COUNTERS},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.optimizer.load_state_dict(state["optimizer"])
        older = {"refused": 0, "refused_in_a_row": 0}  # older checkpoints lack these counts
        schedule = older | state["schedule"]
        for name in _COUNTERS:
            setattr(self, name, schedule[name])


def _mean_kl(sums: dict[str, Tensor]) -> float:
    return (sums["kl"] / sums["count"]).item()


def _share_within(limit: float, before: float, after: float) -> float:
    """Return the fraction of a first step that brings the KL divergence down to the limit.

    The divergence is assumed to grow linearly along the step. It actually grows quadratically, so
    the fraction is smaller than necessary. It is 1 if the divergence exceeded the limit before the
    step: policy lag is no reason not to learn.
    """
    return 1.0 if before >= limit else (limit - before) / (after - before)


def _optimizer(network: Network, config: LearnerConfig) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(
            network.parameters(),
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=True,
        )
    return torch.optim.RMSprop(
        network.parameters(),
        lr=config.learning_rate,
        alpha=config.alpha,
        eps=config.epsilon,
        momentum=config.momentum,
    )
