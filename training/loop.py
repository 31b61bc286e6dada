"""A training run in any schedule: turns rollouts into updates, log rows and checkpoints."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from time import process_time
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from fastweights.agents import Learner, Network
from fastweights.cores import growth
from fastweights.envs import BrokenEnvironment, resolve
from fastweights.host import (
    Interrupted,
    ProgressDisplay,
    StageColumns,
    Stages,
    StopRequests,
    UserError,
)
from fastweights.records import Metrics, save_or_warn
from fastweights.training.exchange import (
    GAME,
    LAG,
    LIFE,
    WEIGHTS,
    Exchange,
    WeightsApart,
)
from fastweights.training.feature_variation import FeatureVariation
from fastweights.training.hashes import Record, digest, record_nothing
from fastweights.training.layer_checks import checked_layers
from fastweights.training.options import RunOptions
from fastweights.training.replicas import LostLearner, Replicas
from fastweights.training.saved_agent import pack, unpack
from fastweights.training.schedules.experience import (
    Batch,
    Experience,
    Source,
    SourceFailed,
    batches,
)

_CHECK_EVERY = 100  # updates between checks that all learners hold the same weights
# Updates before a look at the value targets, and how large they may be, in units of --value-scale.
_LOOK_AT, _LARGE = 20, 10.0


class Diverged(UserError):
    """Training makes no progress: its losses or gradients are not finite."""


class NothingLearned(UserError):
    """A run reached its end with every update refused."""


class WeightsLost(UserError):
    """An update produced non-finite weights, which must not be saved."""


_NOT_RESCUED = (UserError, WeightsApart)


class Training:
    """The learner and its run's records; `source` is the schedule.

    With several `replicas`, the log covers all learners, but its seconds, queues and feature
    variation are this learner's. All learners stop if one of them is asked to.

    Args:
        options: the run's options.
        network: the network to train.
        source: rollouts, from the schedule.
        metrics: the log.
        stages: the stages of the learner's thread.
        replicas: this process's place among several learners.
        stop: requests to stop.
        record: called after each update.
    """

    def __init__(
        self,
        options: RunOptions,
        network: Network,
        source: Source,
        metrics: Metrics,
        stages: Stages,
        replicas: Replicas | None = None,
        stop: StopRequests | None = None,
        record: Record = record_nothing,
    ):
        self.options, self.source, self.metrics, self.stages = options, source, metrics, stages
        self.replicas, self.stop = replicas or Replicas(), stop or StopRequests()
        self.record, self._exchange = record, Exchange(self.replicas)
        self.learner = Learner(network, options.learner, stages, self._exchange, options.seed)
        self._reports: list[Sequence[float]] = []  # not sent to the other learners yet
        clips = options.learner.reward_clipping == "abs_one" and self.replicas.rank == 0
        self._may_clip = clips and resolve(options.env).rom is None

    @property
    def steps(self) -> int:
        """The number of agent steps learned from."""
        return self.learner.steps

    @property
    def finished(self) -> bool:
        """Whether all agent steps are learned."""
        return self.steps >= self.options.learner.total_steps

    def rows(self) -> Iterator[dict[str, Any]]:
        """Learn from one batch after another, without end; yield each update's row.

        Closing this generator stops the source.
        """
        self.source.publish(self.learner.updates)
        seconds, start = StageColumns(self.source.threads), time.monotonic()
        busy = process_time()
        network = self.learner.network
        variation = FeatureVariation(network, self.learner.optimizer)
        checked = checked_layers(network, self.stages.check)
        with self.source, checked, variation:
            share = len(self.replicas.share(self.options.batch_size, "--batch-size"))
            for batch in batches(self._noted(self.source.rollouts()), share):
                before = self.steps
                row = self._learn(batch)
                failure = self._hand_on(batch)
                taken, start = time.monotonic() - start, time.monotonic()
                busy, last = process_time(), busy
                clocks = {
                    "agent_steps_per_second": (self.steps - before) / taken,
                    "cpu_seconds": busy - last,
                }
                yield row | variation.row() | clocks | self.source.columns() | seconds.row()
                if failure is not None:
                    raise failure

    def _noted(self, rollouts: Iterable[Experience]) -> Iterator[Experience]:
        for experience in rollouts:
            for game in experience.collected.episodes:
                numbers = (game.episode_return, game.agent_steps, game.emulator_frames)
                self._reports.append((GAME, *numbers))
            for life in experience.collected.lives:
                self._reports.append((LIFE, life.life_return, 0, 0))
            yield experience

    def _learn(self, batch: Batch) -> dict[str, Any]:
        """Make one update and return its row.

        If another learner has gone, either nothing was learned, because the update restores the
        weights, or the update has a row.
        """
        waiting, lag = self.source.waiting, self.learner.updates - batch.version
        reports = [*self._reports, (LAG, lag, 0, 0)]
        if self.replicas.count > 1 and self.learner.updates % _CHECK_EVERY == 0:
            with self.stages("exchange"):
                reports.append((WEIGHTS, _checksum(self.learner.network), 0, 0))
        self._exchange.tell(reports)
        losses = self.learner.update(batch.rollout)
        lag = self._note(self._exchange.heard)
        with self.stages("optimise"):  # on a GPU, reading a number waits for the whole update
            losses = {name: float(loss) for name, loss in losses.items()}
        with self.stages("log"):
            self.record(batch.rollout, self.learner)
            self._look_at_values(losses["value_target_rms"])
            self._look_at_rewards(batch.rollout.reward)
        return losses | {
            "step": self.steps,
            "updates": self.learner.updates,
            "refused_updates": self.learner.refused,
            "learner_queue_size": waiting,
            "policy_lag": lag,
            "learning_rate": self.learner.learning_rate(),
        }

    def _look_at_values(self, rms: float) -> None:
        """Print a note, once, if the value targets are so large that their loss dominates."""
        scale, is_fixed = self.options.value_scale, not self.options.learner.normalize_values
        is_time = self.learner.updates == _LOOK_AT and not self.learner.refused_in_a_row
        if is_fixed and is_time and rms > _LARGE * scale and self.replicas.rank == 0:
            can_follow = self.learner.objective.fixes_targets
            remedy = "normalize-values" if can_follow else f"value-scale {float(f'{rms:.1g}'):g}"
            print(
                f"note: the value targets are about {rms / scale:,.0f} in units of --value-scale "
                f"{scale:g}, so the value loss outweighs the policy's: try a new run with "
                f"--{remedy}",
                file=sys.stderr,
            )

    def _look_at_rewards(self, reward: Tensor) -> None:
        """Print a note, once, if the losses clip rewards of a game for which this is not usual."""
        if self._may_clip and (largest := float(reward.abs().max())) > 1:
            self._may_clip = False
            print(
                f"note: rewards as large as {largest:.4g} are clipped to [-1, 1] in the losses: if "
                "their size matters, try a new run with --reward-clipping none",
                file=sys.stderr,
            )

    def _hand_on(self, batch: Batch) -> Exception | None:
        """Publish the new weights; return an error, to be raised after the update's row."""
        try:
            self.source.publish(self.learner.updates)
            self.source.release(batch.used_up)
        except Exception as failure:
            return failure
        return None

    def _note(self, reports: Sequence[Sequence[float]]) -> int:
        """Record what finished in any learner; return the largest lag."""
        self._reports.clear()
        largest = 0
        for about, *numbers in reports:
            if about == GAME:
                self.metrics.add_game(*numbers)
            elif about == LIFE:
                self.metrics.add_life(numbers[0])
            elif about == LAG:
                largest = max(largest, int(numbers[0]))
        return largest

    def leave(self, request: Interrupted) -> None:
        """Make the other learners stop, too, before the update that this learner will not make.

        Waits until they have computed their gradients, or leave as well.
        """
        try:
            self._exchange.leave(request.signal_number)
        except LostLearner as lost:
            print(f"note: {lost}", file=sys.stderr)

    def check_progress(self) -> None:
        """Raise `Diverged` if too many batches in a row were refused, or `WeightsLost`."""
        norm = get_total_norm([p.detach() for p in self.learner.network.parameters()])
        if not torch.isfinite(norm):
            raise WeightsLost(
                f"the update at {self.steps:,} agent steps produced weights that are not finite; "
                f"checkpoints hold earlier weights. {self._remedy(f'a larger {self._epsilon()}')}"
            )
        limit = self.options.max_refused_updates
        if self.learner.refused_in_a_row >= limit:
            self.check_learned()
            raise Diverged(
                f"{limit} batches in a row gave a loss or gradient that is not finite and were "
                "refused; the weights are those from before the refused steps. "
                f"{self._remedy('--precision float32')}"
            )

    def check_learned(self) -> None:
        """Raise `NothingLearned` if no update so far has changed a weight."""
        if self.learner.updates == 0:
            grows = growth(self.options.core, **dict(self.options.core_options()))
            raise NothingLearned(
                f"all {self.learner.refused:,} updates gave a loss or gradient that is not finite "
                "and were refused: nothing was learned. The learning rate is not the cause, since "
                "no weight has changed: look for very large rewards, observations or costs "
                "(--reward-clipping, --baseline-cost, --entropy-cost)"
                + (f"; and {grows}" if grows else "")
            )

    def _epsilon(self) -> str:
        """Return the optimiser's flag for the constant added to the root of squared gradients."""
        return "--adam-epsilon" if self.options.learner.optimizer == "adam" else "--epsilon"

    def _remedy(self, otherwise: str) -> str:
        """Return the remedy to try first: the core's settings if its state grows, or step size."""
        grows = growth(self.options.core, **dict(self.options.core_options()))
        first = f"{grows[0].upper()}{grows[1:]}. Else try" if grows else "Try"
        return f"{first} a smaller --learning-rate, or {otherwise}"

    def checkpoint(self) -> dict[str, Any]:
        """Return the payload that `restore` takes."""
        payload = pack(self.options, self.learner, {"metrics": self.metrics.state_dict()})
        # With several learners, the first one writes the file; it knows only its own games.
        games = self.source.snapshot() if self.replicas.count == 1 else None
        return payload if games is None else payload | {"games": games}

    def restore(self, payload: dict[str, Any]) -> None:
        """Restore counters, optimiser, schedule, windows, torch's random state and the games.

        Missing or wrong parts raise the errors of dicts, torch and `float`.
        """
        unpack(payload, self.learner)
        self.metrics.load_state_dict(payload["stats"]["metrics"])
        if "games" in payload and self.replicas.count == 1:
            self.source.restore(payload["games"])


def _checksum(network: Network) -> int:
    """Return a number that depends on the weights and that float64 represents exactly."""
    return int(digest(network.state_dict())[:13], 16)


def train(
    training: Training,
    rows: Iterator[dict[str, Any]],
    display: ProgressDisplay,
    save: Callable[[], None],
    test: Callable[[int, Callable[[], None]], None] = lambda step, check: None,
) -> None:
    """Process `training`'s rows to the end of the run; save at intervals and at the end.

    `test` is called before the first update and between updates, with the agent steps so far and
    with a function that raises if the run should stop. The run is saved before `Interrupted` (if
    `training.stop` requests it), `Diverged`, `SourceFailed`, `LostLearner` or an environment's
    error is raised. It is not saved before `NothingLearned`, so that it does not look finished. A
    checkpoint that cannot be written causes a warning; the last one, a `CheckpointError`. A log row
    that cannot be written causes a `RunFolderError`.
    """
    patience, last_save = training.options.checkpoint_minutes * 60, time.monotonic()
    every = training.options.keep_every or math.inf
    begun = saved_at = training.steps
    stop = training.stop
    try:
        with display, closing(rows):
            with training.stages("test"):
                test(begun, stop.check)  # games due when the run was stopped
            for row in rows:
                with training.stages("log"):
                    display.update(training.steps, training.metrics.log(row))
                training.check_progress()
                if training.finished:
                    training.check_learned()
                    break
                stop.check()
                with training.stages("test"):
                    test(training.steps, stop.check)
                is_kept = training.steps // every > saved_at // every
                if is_kept or time.monotonic() - last_save > patience:
                    with training.stages("save"):
                        save_or_warn(save)
                    last_save, saved_at = time.monotonic(), training.steps
    except Interrupted as request:
        try:
            save()  # no learner can make the update without this learner: the weights are final
        finally:
            training.leave(request)
        raise
    except (Diverged, LostLearner, SourceFailed):
        save()
        raise
    except Exception as failure:
        # Not after a disk error, nor if it is unknown which weights are right.
        if isinstance(failure, BrokenEnvironment) or not isinstance(failure, _NOT_RESCUED):
            _rescue(training, save, begun)
        raise
    save()


def _rescue(training: Training, save: Callable[[], None], begun: int) -> None:
    """Save the learned weights after a failure that leaves them intact, such as an environment's.

    `begun`: agent steps at the start of this process; if there are no more, nothing is saved.
    """
    if training.steps == begun:
        return
    try:
        save()
    except Exception as error:
        print(f"warning: nothing was saved before the failure below: {error}", file=sys.stderr)
    else:
        if training.replicas.leads and not training.options.disable_checkpoint:
            print(
                f"saved at {training.steps:,} agent steps; --resume continues from there",
                file=sys.stderr,
            )
