"""The lockstep schedule: collect, learn, repeat, each with the whole machine.

One network acts and learns, so with one batch a collection the policy lag is 0; the same seed on
the same machine gives the same logs, bit for bit.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from agents.actor import Actor
from agents.learner import Learner
from agents.network import Network
from agents.rollout import Rollout
from envs.interface import Environments
from launch.display import Display
from launch.metrics import Metrics
from launch.options import RunOptions
from launch.saved_agent import pack


class Lockstep:
    """One training run's moving parts, in one thread."""

    def __init__(
        self,
        options: RunOptions,
        network: Network,
        environments: Environments,
        metrics: Metrics,
        device: torch.device,
    ):
        self.options, self.metrics = options, metrics
        self.learner = Learner(network, options.learner)
        self.generator = torch.Generator(device).manual_seed(options.seed)
        self.actor = Actor(network, environments, device=device, generator=self.generator)

    @property
    def steps(self) -> int:
        """Agent steps learned from."""
        return self.learner.steps

    @property
    def finished(self) -> bool:
        return self.steps >= self.options.learner.total_steps

    def cycle(self) -> Iterator[dict[str, Any]]:
        """Collects one rollout from every environment and learns from all; yields a row a batch."""
        start = time.monotonic()
        acting_version = self.learner.updates
        collected = self.actor.collect(self.options.unroll_length)
        for episode in collected.episodes:
            self.metrics.add_game(
                episode.episode_return, episode.agent_steps, episode.emulator_frames
            )
        for life in collected.lives:
            self.metrics.add_life(life.life_return)
        for batch in self._batches(collected.rollout):
            lag = self.learner.updates - acting_version
            losses = self.learner.update(batch)
            taken, start = time.monotonic() - start, time.monotonic()
            yield self._row(losses, lag, batch.action.numel() / taken)

    def _batches(self, rollout: Rollout) -> Iterator[Rollout]:
        for start in range(0, self.options.num_envs, self.options.batch_size):
            yield rollout.columns(start, start + self.options.batch_size)

    def _row(self, losses: dict[str, Any], lag: int, rate: float) -> dict[str, Any]:
        return {name: float(loss) for name, loss in losses.items()} | {
            "step": self.steps,
            "updates": self.learner.updates,
            "learner_queue_size": 0,
            "policy_lag": lag,
            "learning_rate": self.learner.learning_rate(),
            "agent_steps_per_second": rate,
        }

    def checkpoint(self) -> dict[str, Any]:
        """What `restore` takes."""
        stats = {"metrics": self.metrics.state_dict()}
        return pack(self.options, self.learner, self.generator, stats)

    def restore(self, payload: dict[str, Any]) -> None:
        """Takes up counters, optimiser, schedule, windows and random numbers of a checkpoint."""
        self.learner.network.load_state_dict(payload["model_state_dict"])
        self.learner.load_state_dict(
            {
                "optimizer": payload["optimizer_state_dict"],
                "schedule": payload["scheduler_state_dict"],
            }
        )
        self.metrics.load_state_dict(payload["stats"]["metrics"])
        torch.set_rng_state(payload["rng"]["torch"].cpu())
        self.generator.set_state(payload["rng"]["actions"].cpu())


class Interrupted(Exception):
    """Somebody asked the run to stop; `signal_number` says how."""

    def __init__(self, signal_number: int):
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Yields a function that tells which of SIGINT and SIGTERM has come, if any.

    The first one only leaves a note, so that a run can finish its update and save; the second
    does what it would have done without us.
    """
    received: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train(
    run: Lockstep,
    display: Display,
    save: Callable[[], None],
    checkpoint_seconds: float,
) -> None:
    """Trains to the end, saving on the way.

    Raises `Interrupted` after saving where SIGINT or SIGTERM came.
    """
    last_save = time.monotonic()
    with stop_requests() as stop_requested, display:
        while not run.finished:
            for row in run.cycle():
                display.update(run.steps, run.metrics.log(row))
            if (number := stop_requested()) is not None:
                save()
                raise Interrupted(number)
            if time.monotonic() - last_save > checkpoint_seconds:
                save()
                last_save = time.monotonic()
    save()
