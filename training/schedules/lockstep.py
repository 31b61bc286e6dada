"""The lockstep schedule: collect, learn, repeat, each with the whole machine.

One network acts and learns, so the policy lag is 0 with one batch per collection. The same seed on
the same machine gives bit-identical logs.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch

from fastweights.agents import OBJECTIVES, Actor, Network
from fastweights.envs import Environments
from fastweights.host import Stages, multiples_near, one_line, with_threads
from fastweights.records import check_plain
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.experience import Experience
from fastweights.training.schedules.plan import Devices, Plan


class LockstepPlan(Plan):
    """The plan of a lockstep run; also raises if a batch covers only part of the environments."""

    schedule = "lockstep"

    def __init__(self, options: RunOptions, replicas: Replicas, devices: Devices):
        super().__init__(options, replicas, devices)
        if options.num_envs % options.batch_size:
            wanted = f"--num-envs {multiples_near(options.batch_size, options.num_envs)}"
            if options.num_envs < options.batch_size:
                wanted = f"--batch-size {options.num_envs}"
            raise ValueError(
                f"--num-envs {options.num_envs} is not a multiple of --batch-size "
                f"{options.batch_size}: every lockstep update uses the rollouts of a whole batch "
                f"of environments; try {wanted}, or --schedule asynchronous"
            )

    def environments(self, step: int) -> Iterator[Environments]:
        """Make all of this learner's environments, as one group."""
        return self.groups([len(self.streams)], step)

    def source(
        self, network: Network, environments: Sequence[Environments], step: int, stages: Stages
    ) -> "Lockstep":
        """Return the source of rollouts; see `Plan.source`."""
        objective = OBJECTIVES[self.options.learner.objective]
        return Lockstep(
            network,
            environments[0],
            length=self.options.unroll_length,
            device=self.actor,
            generator=self.generator(step, 0),
            streams=self.streams,
            of=self.options.num_envs,
            graphed=self.options.cuda_graphs,
            threads=self.options.actor_threads,
            values=self.options.fills_one_batch and objective.fixes_targets,
            stages=stages,
        )


class Lockstep:
    """A `Source` that collects `length` steps of each stream whenever a rollout is requested.

    Args:
        network: the network that acts and learns.
        environments: this learner's environments.
        length: agent steps per rollout.
        device: the device.
        generator: generator of the actions.
        streams: this learner's streams among those of all learners.
        of: total number of streams of all learners.
        graphed: passed to the actor.
        threads: number of CPU threads that choose actions; 0: as many as torch uses.
        values: whether rollouts contain the actor's values, which requires the learner's weights.
        stages: the stages of the only thread.
    """

    waiting = 0

    def __init__(
        self,
        network: Network,
        environments: Environments,
        *,
        length: int,
        device: torch.device,
        generator: torch.Generator,
        streams: range,
        of: int,
        graphed: bool = False,
        threads: int = 0,
        values: bool = False,
        stages: Stages,
    ):
        self.threads = (stages,)
        self._values, self._threads = values, threads
        self._environments, self._length, self._version = environments, length, 0
        self._unused = 0  # rollouts collected but not yet used completely
        self._actor = Actor(
            network,
            environments,
            device=device,
            generator=generator,
            streams=streams,
            of=of,
            graphed=graphed,
            stage=stages,
        )
        self._cannot_store = False
        # Taken between collections: a collection may be interrupted; closed games have no state.
        self._games = self._snapshot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the environments; see `Source.close`."""
        self._environments.close()

    def rollouts(self) -> Iterator[Experience]:
        """Collect and yield rollouts without end; see `Source.rollouts`."""
        while True:
            self._unused = 1
            with with_threads(self._threads):
                collected = self._actor.collect(self._length, values=self._values)
            yield Experience(collected, self._version)

    def publish(self, version: int) -> None:
        """Do nothing: the network that learns is the one that acts."""
        self._version = version

    def release(self, count: int) -> None:
        """Count the rollouts that were used, and record the games' state after them."""
        self._unused -= count
        self._games = None
        if not self._unused:
            self._games = self._snapshot()

    def columns(self) -> dict[str, float]:
        """Return no columns; see `Source.columns`."""
        return {}

    def snapshot(self) -> dict[str, Any] | None:
        """Return the games' state after the last update; None if its rollout is partly unused."""
        return self._games

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore the games; raises as `Actor.restore` does. See `Source.restore`."""
        self._actor.restore(snapshot)
        if "torch" in snapshot:  # older checkpoints lack it
            torch.set_rng_state(snapshot["torch"].cpu())
        self._games = self._snapshot()

    def _snapshot(self) -> dict[str, Any] | None:
        """Return the games' state; None, with a warning, if it cannot be stored.

        A user's game must not prevent the weights from being saved.
        """
        if self._cannot_store:
            return None
        try:
            games = self._actor.snapshot()
            if games is not None:  # dropout draws from it while a collection is played and learned
                games["torch"] = torch.get_rng_state()
            check_plain(games, "snapshot")
        except Exception as error:
            self._cannot_store = True
            print(
                f"warning: the state of the games cannot be saved ({type(error).__name__}: "
                f"{one_line(str(error))}): a resumed run will begin new games",
                file=sys.stderr,
            )
            return None
        return games
