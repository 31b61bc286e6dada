"""A training run in any schedule: rollouts in; updates, rows of the log and checkpoints out."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import torch

from agents.learner import Learner
from agents.network import Network
from launch.display import Display
from launch.experience import Batch, Experience, Source, batches
from launch.metrics import Metrics
from launch.options import RunOptions
from launch.saved_agent import pack
from launch.stages import Columns, Stages
from launch.stopping import Interrupted, StopRequests


class Training:
    """The learner, and what is kept of its run; `source` is the schedule.

    `stages` are those of the learner's thread.
    """

    def __init__(
        self,
        options: RunOptions,
        network: Network,
        source: Source,
        metrics: Metrics,
        stages: Stages,
    ):
        self.options, self.source, self.metrics, self.stages = options, source, metrics, stages
        self.learner = Learner(network, options.learner, stage=stages)

    @property
    def steps(self) -> int:
        """Agent steps learned from."""
        return self.learner.steps

    @property
    def finished(self) -> bool:
        return self.steps >= self.options.learner.total_steps

    def rows(self) -> Iterator[dict[str, Any]]:
        """Learns from one batch after the other; yields each update's row, without end.

        Closing this generator ends what the source has running.
        """
        self.source.publish(self.learner.updates)
        seconds, start = Columns(self.source.threads), time.monotonic()
        with self.source:
            for batch in batches(self._noted(self.source.rollouts()), self.options.batch_size):
                row = self._learn(batch)
                taken, start = time.monotonic() - start, time.monotonic()
                rate = {"agent_steps_per_second": batch.rollout.action.numel() / taken}
                yield row | rate | seconds.row()

    def _noted(self, rollouts: Iterable[Experience]) -> Iterator[Experience]:
        for experience in rollouts:
            for game in experience.collected.episodes:
                self.metrics.add_game(game.episode_return, game.agent_steps, game.emulator_frames)
            for life in experience.collected.lives:
                self.metrics.add_life(life.life_return)
            yield experience

    def _learn(self, batch: Batch) -> dict[str, Any]:
        waiting, lag = self.source.waiting, self.learner.updates - batch.version
        losses = self.learner.update(batch.rollout)
        with self.stages("optimise"):  # on a GPU, reading a number waits for the whole update
            losses = {name: float(loss) for name, loss in losses.items()}
        self.source.publish(self.learner.updates)
        self.source.release(batch.used_up)
        return losses | {
            "step": self.steps,
            "updates": self.learner.updates,
            "learner_queue_size": waiting,
            "policy_lag": lag,
            "learning_rate": self.learner.learning_rate(),
        }

    def checkpoint(self) -> dict[str, Any]:
        """What `restore` takes."""
        return pack(self.options, self.learner, {"metrics": self.metrics.state_dict()})

    def restore(self, payload: dict[str, Any]) -> None:
        """Takes up counters, optimiser, schedule, windows and torch's random numbers."""
        self.learner.network.load_state_dict(payload["model_state_dict"])
        self.learner.load_state_dict(
            {
                "optimizer": payload["optimizer_state_dict"],
                "schedule": payload["scheduler_state_dict"],
            }
        )
        self.metrics.load_state_dict(payload["stats"]["metrics"])
        torch.set_rng_state(payload["rng"]["torch"].cpu())


def train(
    training: Training,
    rows: Iterator[dict[str, Any]],
    display: Display,
    save: Callable[[], None],
    stop: StopRequests,
    test: Callable[[int, Callable[[], None]], None] = lambda step, check: None,
) -> None:
    """Takes `training`'s rows to the end of the run, saving now and then, and at last.

    `test` is called between updates with the agent steps so far and with what raises where the run
    is to stop. Raises `Interrupted` after saving where SIGINT or SIGTERM came.
    """
    patience, last_save = training.options.checkpoint_minutes * 60, time.monotonic()
    with stop:
        try:
            with display, closing(rows):
                for row in rows:
                    with training.stages("log"):
                        display.update(training.steps, training.metrics.log(row))
                    if training.finished:
                        break
                    with training.stages("test"):
                        test(training.steps, stop.check)
                    if time.monotonic() - last_save > patience:
                        with training.stages("save"):
                            save()
                        last_save = time.monotonic()
        except Interrupted:
            save()
            raise
        save()
