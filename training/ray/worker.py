"""The code of the processes that Ray starts: an actor with its environments.

Only the two lines that fetch weights depend on Ray. Rollouts and weights travel as NumPy arrays
(`training/ray/wire.py`).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from ray.actor import ActorHandle

from fastweights.agents import Actor, Network
from fastweights.cores import import_core
from fastweights.envs import BrokenEnvironment
from fastweights.host import Stages, compute_exactly, tune_allocator, use_threads
from fastweights.kernels import use_backend
from fastweights.training.environments import make_environments
from fastweights.training.options import RunOptions
from fastweights.training.ray.board import Offer
from fastweights.training.ray.wire import pack
from fastweights.training.schedules.experience import Experience

Timed = dict[str, tuple[float, int]]  # seconds and calls of stages

_PATIENCE = 5.0  # seconds to wait for the board; then acting continues with the current weights


class Job(NamedTuple):
    """The description of an actor, in plain values."""

    options: dict[str, Any]  # `RunOptions.to_dict`
    num_envs: int
    environment_seed: int
    action_seed: int
    device: str


class ActorFailed(Exception):
    """A failure in an actor, as one line that any process can read."""


@contextmanager
def _failing_in_one_line() -> Iterator[None]:
    """Turn every failure in the block except a `BrokenEnvironment` into an `ActorFailed`."""
    try:
        yield
    except BrokenEnvironment:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ActorFailed(" ".join(reason.split())[:500]) from None


class RemoteActor:
    """An `Actor` on its share of the environments."""

    def __init__(self, job: Job, board: ActorHandle) -> None:
        self._job, self._board, self._version = job, board, -1
        self._stages = Stages("actor")

    @_failing_in_one_line()
    def join(self) -> None:
        """Create network and environments. Raises `ActorFailed`, or `BrokenEnvironment`."""
        job, options = self._job, RunOptions.from_dict(self._job.options)
        if options.tune_memory:
            tune_allocator()
        if options.kernels != "auto":
            use_backend(options.kernels)
        use_threads(options.num_threads)
        compute_exactly()
        import_core(options.core)
        environments = make_environments(options, job.num_envs, job.environment_seed, to_learn=True)
        network = Network(options.network(environments.frame_shape, environments.num_actions))
        self._length, self._network = options.unroll_length, network.to(job.device)
        generator = torch.Generator(job.device).manual_seed(job.action_seed)
        self._actor = Actor(
            self._network,
            environments,
            device=job.device,
            generator=generator,
            graphed=options.cuda_graphs,
            stage=self._stages,
        )
        self._since = time.perf_counter()

    @_failing_in_one_line()
    def collect(self, offer: Offer) -> tuple[Experience, Timed]:
        """Return the next rollout, made with the newest weights, never older than `offer`'s.

        Raises `ActorFailed`, or `BrokenEnvironment`.
        """
        before = self._stages.totals()
        idle = time.perf_counter() - self._since
        self._refresh(offer)
        collected = self._actor.collect(self._length)
        with self._stages("transfer"):
            packed = pack(Experience(collected, self._version))
        after, self._since = self._stages.totals(), time.perf_counter()
        timed = {stage: after[stage].since(total) for stage, total in before.items()}
        return packed, timed | {"wait_for_learner": (idle, 1)}

    def _refresh(self, offer: Offer) -> None:
        version, weights = self._newest(max(offer[0], self._version)) or offer
        if version > self._version:
            arrays = ray.get(weights[0])
            self._network.load_state_dict({name: torch.tensor(w) for name, w in arrays.items()})
            self._version = version

    def _newest(self, version: int) -> Offer | None:
        try:
            return ray.get(self._board.newer_than.remote(version), timeout=_PATIENCE)
        except ray.exceptions.RayError:
            return None


def pack_weights(network: Network) -> dict[str, np.ndarray]:
    """Return a network's weights by name."""
    return {name: w.contiguous().cpu().numpy() for name, w in network.state_dict().items()}
