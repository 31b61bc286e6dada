"""The asynchronous schedule: groups of environments are played while the learner learns.

Each group has a thread, a copy of the network and, on a GPU, a stream. While one group's emulators
run (they release the GIL), another group's frames are transferred and its actions chosen. The
learner is the main thread, on its own device or on the default stream of the same GPU.
"""

import copy
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Self

import torch

from fastweights.agents import Actor, Network, WeightStore
from fastweights.envs import Environments
from fastweights.host import Stages, leave_behind
from fastweights.training.schedules.experience import Experience
from fastweights.training.schedules.plan import Plan
from fastweights.training.schedules.rollout_queue import Closed, QueuedSource

STUCK_AFTER = 60.0  # seconds in one stage before a warning
_BRIEF = {"emulation", "inference", "transfer"}  # stages without waiting
_PATIENCE = 1.5  # seconds for all threads to stop; threads stuck in an emulator are left behind


class Group(NamedTuple):
    """Environments that step together, and the generator of their actions, on the acting device."""

    environments: Environments
    generator: torch.Generator


class AsynchronousPlan(Plan):
    """The plan of an asynchronous run."""

    schedule = "asynchronous"

    def environments(self, step: int) -> Iterator[Environments]:
        """Make groups of environments whose sizes differ by at most one."""
        groups = min(self.options.env_groups, len(self.streams))
        each, more = divmod(len(self.streams), groups)
        return self.groups([each + (group < more) for group in range(groups)], step)

    def source(
        self, network: Network, environments: Sequence[Environments], step: int, stages: Stages
    ) -> "Asynchronous":
        """Return the source of rollouts; see `Plan.source`."""
        first, ahead = self.replicas.rank * len(environments), self.options.queue_size
        return Asynchronous(
            network,
            [
                Group(group, self.generator(step, number))
                for number, group in enumerate(environments, first)
            ],
            length=self.options.unroll_length,
            slots=slots(
                [group.num_envs for group in environments],
                self.batch_size,
                len(environments) if ahead is None else ahead,
            ),
            actor_device=self.actor,
            learner_device=self.learner,
            graphed=self.options.cuda_graphs,
            stages=stages,
        )


class Asynchronous(QueuedSource):
    """A `Source` that collects `length` steps at a time in a thread for each of `groups`.

    `graphed` is passed to their actors.
    """

    def __init__(
        self,
        network: Network,
        groups: Sequence[Group],
        *,
        length: int,
        slots: int,
        actor_device: torch.device,
        learner_device: torch.device,
        graphed: bool = False,
        stages: Stages,
    ):
        super().__init__(slots, stages)
        self._network, self._length, self._graphed = network, length, graphed
        self._actor_device, self._learner_device = actor_device, learner_device
        self._store = WeightStore()
        acting = [Stages(f"actor {i}", self.queue.check) for i in range(len(groups))]
        self.threads = (stages, *acting)
        self._stuck: set[str] = set()
        self._looked = self._woke = time.monotonic()
        stages.checks.append(self._say_who_is_stuck)
        # Copied here, in the only thread that modifies the network.
        copies = [copy.deepcopy(network).to(actor_device) for _ in groups]
        threads = [
            threading.Thread(target=self._run, args=own, name=own[-1].name, daemon=True)
            for own in zip(groups, copies, acting, strict=True)
        ]
        self._workers = list(zip(groups, acting, threads, strict=True))

    def __enter__(self) -> Self:
        for *_, thread in self._workers:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; each closes its own environments. See `Source.close`."""
        self.queue.close()
        workers, self._workers = self._workers, []
        deadline = time.monotonic() + _PATIENCE
        for group, stages, thread in workers:
            if thread.ident is None:  # never started
                group.environments.close()
                continue
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                stage = stages.current or "its start"
                print(f"warning: {thread.name} is stuck in {stage}; left behind", file=sys.stderr)
                leave_behind(thread)

    def publish(self, version: int) -> None:
        """Copy the network's weights to the store that the groups fetch them from."""
        with self.stages("publish"):
            self._store.publish(self._network, version)

    def columns(self) -> dict[str, float]:
        """Return no columns; see `Source.columns`."""
        return {}

    def _say_who_is_stuck(self) -> None:
        """Warn, once per thread, about a stuck thread; the others continue or wait for it.

        Time during which the whole process or the machine is suspended does not count.
        """
        before, self._looked = self._looked, time.monotonic()
        if self._looked - before > STUCK_AFTER:
            self._woke = self._looked
        if self._looked - self._woke <= STUCK_AFTER:
            return
        for thread in self.threads[1:]:
            stage, seconds = thread.going_on
            if stage in _BRIEF and seconds > STUCK_AFTER and thread.name not in self._stuck:
                self._stuck.add(thread.name)
                line = f"{thread.name} has been in {stage} for {seconds:.0f} s; Ctrl-C ends the run"
                print(f"warning: {line}", file=sys.stderr)

    def _run(self, group: Group, network: Network, stages: Stages) -> None:
        try:
            # Separate streams on both devices: otherwise copies would wait for the update.
            with own_stream(self._learner_device), own_stream(self._actor_device):
                self._collect(group, network, stages)
        except Closed:
            pass
        except BaseException as error:
            self.queue.close(error)
        finally:
            group.environments.close()

    def _collect(self, group: Group, network: Network, stages: Stages) -> None:
        version = -1
        actor = Actor(
            network,
            group.environments,
            device=self._actor_device,
            generator=group.generator,
            graphed=self._graphed,
            stage=stages,
        )
        while True:
            with stages("wait_for_learner"):
                self.queue.reserve()
            version = self._store.refresh(network, version)
            collected = actor.collect(self._length)
            with stages("transfer"):
                rollout = collected.rollout.to(self._learner_device)
                finish_stream(self._actor_device)
            self.queue.put(Experience(collected._replace(rollout=rollout), version))


def slots(group_sizes: Sequence[int], batch_size: int, queue_size: int) -> int:
    """Return the number of rollouts in flight: one batch, and `queue_size` more.

    It always suffices to fill a batch while the rest of a rollout waits for the next batch.
    """
    smallest = min(group_sizes)
    if len(set(group_sizes)) == 1 and batch_size % smallest == 0:
        needed = batch_size // smallest
    elif all(size % batch_size == 0 for size in group_sizes):
        needed = 1
    else:
        needed = 1 + -(-(batch_size - 1) // smallest)  # a single column of one rollout is left
    return needed + queue_size


def own_stream(device: torch.device) -> AbstractContextManager[object]:
    """Return a high-priority stream on a GPU, ahead of the learner's large kernels."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device, priority=-1))


def finish_stream(device: torch.device) -> None:
    """Wait for this thread's stream, so that another thread's stream may read its results."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
