"""The plan of a run: its devices, this learner's share, and the source of its rollouts."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple, Self

import torch

from fastweights.agents import Network
from fastweights.envs import Environments
from fastweights.host import Stages, choose_device, choose_precision, divisors_near
from fastweights.training.environments import make_environments
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.experience import Source
from fastweights.training.seeds import action_seed, environment_seed

Schedule = Literal["lockstep", "asynchronous", "ray"]


class Devices(NamedTuple):
    """The device that chooses actions, and the device that computes gradients."""

    actor: torch.device
    learner: torch.device

    @classmethod
    def of(cls, options: RunOptions, replicas: Replicas) -> Self:
        """Return one learner's devices; raise a one-line `ValueError` for a missing device."""
        device = _device(options.device, "--device", replicas)
        actor = _device(options.actor_device, "--actor-device", replicas) or device
        learner = _device(options.learner_device, "--learner-device", replicas) or device
        return cls(actor, learner)


class Plan(ABC):
    """Abstract: a run in one schedule, with the `actor` and `learner` devices.

    With several `replicas`, `streams` and `batch_size` are this learner's share. `options` are
    those given, with `auto` resolved for the precision and `feed_last_action`: actors compute in
    the learner's precision.

    Raises:
        ValueError: options that contradict each other; one line.
    """

    schedule: ClassVar[Schedule]
    gpu_option: ClassVar[str] = "--device cuda"  # lets actions be chosen on a GPU

    def __init__(self, options: RunOptions, replicas: Replicas, devices: Devices):
        self.replicas = replicas
        self.held = ExitStack()  # ends with the run
        self.actor, self.learner = devices
        self.streams = replicas.share(options.num_envs, "--num-envs")
        self.batch_size = len(replicas.share(options.batch_size, "--batch-size"))
        _check_minibatches(options, self.batch_size)
        if options.cuda_graphs and not self.acts_on_gpu(options):
            raise ValueError(
                "--cuda-graphs needs actions to be chosen on a CUDA GPU, not on "
                f"{self.actor.type}: leave it out, --no-cuda-graphs, or act on a CUDA GPU, "
                f"{self.gpu_option}"
            )
        precision = choose_precision(options.precision, self.learner, self.actor)
        feeds = options.sees_last_action()
        self.options = replace(options, precision=precision, feed_last_action=feeds)

    def __str__(self) -> str:
        count = self.replicas.count
        learners = f", {count} learners with {self.batch_size} of each batch" if count > 1 else ""
        return f"{self.where()}{learners}"

    def where(self) -> str:
        """Return, in words, where actions are chosen and gradients are computed."""
        devices = " and ".join(dict.fromkeys((str(self.actor), str(self.learner))))
        return f"{self.schedule} on {devices}"

    def acts_on_gpu(self, options: RunOptions) -> bool:
        """Return whether actions are chosen on a CUDA GPU."""
        return self.actor.type == "cuda"

    def close(self) -> None:
        """Free the plan's resources; a second call does nothing."""
        self.held.close()

    @abstractmethod
    def environments(self, step: int) -> Iterator[Environments]:
        """Make this process's environments for a run at agent step `step`; at least one."""

    @abstractmethod
    def source(
        self,
        network: Network,
        environments: Sequence[Environments],
        step: int,
        stages: Stages,
    ) -> Source:
        """Return the source of `network`'s rollouts on the result of `environments(step)`.

        The source closes the environments. `stages` are the main thread's.
        """

    def groups(self, sizes: Sequence[int], step: int) -> Iterator[Environments]:
        """Make groups of environments; environment i has the same seed for any grouping.

        The seed does not depend on the number of learners either.
        """
        first = environment_seed(self.options.seed, step, self.streams.start)
        for size in sizes:
            yield make_environments(self.options, size, first, to_learn=True)
            first += size

    def generator(self, step: int, number: int) -> torch.Generator:
        """Return the action generator of group `number`, counted over all learners."""
        seed = action_seed(self.options.seed, step, number)
        return torch.Generator(self.actor).manual_seed(seed)


def _device(name: str | None, option: str, replicas: Replicas) -> torch.device | None:
    if name is None:
        return None
    device = replicas.device(choose_device(name, option), option)
    return choose_device(str(device), option)


def _check_minibatches(options: RunOptions, share: int) -> None:
    """Check one learner's share of a batch; `training/checks.py` checks the whole batch."""
    minibatches = options.learner.minibatches
    if share % minibatches:
        raise ValueError(
            f"--minibatches {minibatches} does not divide each learner's share of a batch, "
            f"{share} rollouts: try --minibatches {divisors_near(share, minibatches)}"
        )
