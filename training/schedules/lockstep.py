"""The lockstep schedule: collect, learn, repeat, each with the whole machine.

One network acts and learns, so with one batch a collection the policy lag is 0; the same seed on
the same machine gives the same logs, bit for bit.
"""

from collections.abc import Iterator
from typing import Any, Self

import torch

from fastweights.agents import Actor, Network
from fastweights.envs import Environments
from fastweights.host.stages import Stages
from fastweights.training.schedules.experience import Experience


class Lockstep:
    """A `Source` that collects when it is asked for a rollout, `length` steps of each stream.

    `generator` draws the actions, `streams` of those `of` all learners; `stages` are those of the
    one thread; `graphed` is for the actor.
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
        stages: Stages,
    ):
        self.threads = (stages,)
        self._environments, self._length, self._version = environments, length, 0
        self._unused = 0  # rollouts collected and not yet learned from completely
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._environments.close()

    def rollouts(self) -> Iterator[Experience]:
        """See `Source.rollouts`."""
        while True:
            self._unused = 1
            yield Experience(self._actor.collect(self._length), self._version)

    def publish(self, version: int) -> None:
        """Nothing to copy: the network that learns is the one that acts."""
        self._version = version

    def release(self, count: int) -> None:
        """Nobody waits."""
        self._unused -= count

    def columns(self) -> dict[str, float]:
        """See `Source.columns`: none."""
        return {}

    def snapshot(self) -> dict[str, Any] | None:
        """See `Source.snapshot`: none while a part of a rollout is still to be learned from."""
        return None if self._unused else self._actor.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Source.restore`. Raises what `Actor.restore` does."""
        self._actor.restore(snapshot)
