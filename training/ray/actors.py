"""A source of rollouts from actors in other processes, on one machine or several.

    training/ray/worker.py                       training/ray/crew.py      training/loop.py
    actor 0: newest weights, collect, pack ----> unpack, RolloutQueue --> batches, Learner.update
    actor 1: newest weights, collect, pack ---->        ^                        |
                  ^ training/ray/board.py <---------------+--- weights, once ------+

One thread requests rollouts from the actors and receives them; each actor has one request in
advance, so that none is idle. A rollout occupies a slot of `training/schedules/rollout_queue.py`
from the request until it has been learned from.
"""

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Self

import ray
import torch
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fastweights.agents import Network, Rollout
from fastweights.host import Stages
from fastweights.training.ray.board import Board, Offer
from fastweights.training.ray.crew import Crew, Delivery, in_one_line
from fastweights.training.ray.session import Session
from fastweights.training.ray.wire import WireError, check_times, unpack
from fastweights.training.ray.worker import Job, RemoteActor, pack_weights
from fastweights.training.schedules.asynchronous import finish_stream, own_stream
from fastweights.training.schedules.experience import SourceFailed
from fastweights.training.schedules.rollout_queue import Closed, QueuedSource

_POLL = 0.02  # seconds between checks for a free slot
_PATIENCE = 1.5  # seconds for the thread to stop


class RayActors(QueuedSource):
    """A `Source` with `size` actors, each created from `job(number, incarnation)`.

    Ray reserves `cpus` and `gpus` for each actor.
    """

    def __init__(
        self,
        network: Network,
        session: Session,
        *,
        job: Callable[[int, int], Job],
        size: int,
        cpus: float,
        gpus: float,
        form: Rollout,
        slots: int,
        learner_device: torch.device,
        stages: Stages,
    ):
        super().__init__(slots, stages)
        self._network, self.session, self._form = network, session, form
        self._device = learner_device
        self.crew = Crew(partial(self._start, job, cpus, gpus), size, self.queue.release)
        self._own_stages = Stages("ray", self.queue.check)
        self.threads = (stages, self._own_stages, *self.crew.stages)
        self._board: ActorHandle = _start_board()
        self._offer: Offer | None = None
        self._thread = threading.Thread(target=self._run, name="ray", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, the session and thus all actors; see `Source.close`."""
        self.queue.close()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            print("warning: the thread that talks to Ray is stuck; left behind", file=sys.stderr)
        self.session.close()

    def publish(self, version: int) -> None:
        """Put the network's weights into Ray's object store, once for all actors."""
        with self.stages("publish"):
            self._offer = (version, [ray.put(pack_weights(self._network))])
            self._board.post.remote(self._offer)

    def columns(self) -> dict[str, float]:
        """Return the numbers of actors, of restarts and of lost rollouts; see `Source.columns`."""
        crew = self.crew
        counts = {"actor_restarts": crew.restarts, "lost_rollouts": crew.lost}
        return {"actors": crew.actors, **counts}

    def _start(
        self,
        job: Callable[[int, int], Job],
        cpus: float,
        gpus: float,
        number: int,
        incarnation: int,
    ) -> ActorHandle:
        remote = ray.remote(RemoteActor).options(num_cpus=cpus, num_gpus=gpus)
        return remote.remote(job(number, incarnation), self._board)

    def _run(self) -> None:
        try:
            with own_stream(self._device):
                self.crew.begin()
                while True:
                    self.queue.check()
                    self._ask()
                    for delivery in self.crew.deliveries(_POLL):
                        self._take(delivery)
        except Closed:
            self.crew.end()
        except RayError as error:
            self.queue.close(SourceFailed(f"Ray has ended: {in_one_line(error)}"))
        except BaseException as error:
            self.queue.close(error)

    def _ask(self) -> None:
        while self.queue.free and (member := self.crew.who_is_free()):
            self.queue.reserve()
            self.crew.ask(member, self._offer)

    def _take(self, delivery: Delivery) -> None:
        member = delivery.member
        try:
            with self._own_stages("transfer"):
                check_times(delivery.timed)
                experience = unpack(delivery.packed, self._form)
                rollout = experience.collected.rollout.to(self._device)
                finish_stream(self._device)
        except WireError as error:
            self.queue.release(1)
            self.crew.lost += 1
            self.crew.replace(member, f"its data is not a valid rollout: {error}")
            return
        self.crew.has_delivered(member)
        member.stages.add(delivery.timed)
        collected = experience.collected._replace(rollout=rollout)
        self.queue.put(experience._replace(collected=collected))


def _start_board() -> ActorHandle:
    """Start the board on the learner's machine; if it dies, Ray restarts it for new weights."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
    return ray.remote(Board).options(**options).remote()
