"""The choice of a run's schedule, and its source of rollouts."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import Literal

import torch

from fastweights.agents import Network
from fastweights.envs import Environments
from fastweights.host import Stages, choose_device, choose_precision
from fastweights.training.environments import make_environments
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.asynchronous import Asynchronous, Group, slots
from fastweights.training.schedules.experience import Source
from fastweights.training.schedules.lockstep import Lockstep
from fastweights.training.seeds import action_seed, environment_seed

Schedule = Literal["lockstep", "asynchronous", "ray"]


class Plan:
    """A run's `schedule`, and its `actor` and `learner` devices.

    With several `replicas`, `streams` and `batch_size` are this learner's share. `options` are
    those given, with `auto` resolved for the precision and `feed_last_action`: actors compute in
    the learner's precision.

    Raises:
        ValueError: a device that this machine lacks, or options that contradict; one line.
    """

    def __init__(self, options: RunOptions, replicas: Replicas | None = None):
        self.replicas = replicas or Replicas()
        self.streams = self.replicas.share(options.num_envs, "--num-envs")
        self.batch_size = len(self.replicas.share(options.batch_size, "--batch-size"))
        _check_minibatches(options, self.batch_size)
        device = self._device(options.device, "--device")
        self.actor = self._device(options.actor_device, "--actor-device") or device
        self.learner = self._device(options.learner_device, "--learner-device") or device
        if options.engine == "ray" and not options.actor_gpus:
            self.actor = torch.device("cpu")  # assumed to be like this machine's
        _check_cuda_graphs(options, self.actor)
        precision = choose_precision(options.precision, self.learner, self.actor)
        feeds = options.sees_last_action()
        self.options = options = replace(options, precision=precision, feed_last_action=feeds)
        self._ray = None
        if options.engine == "ray":
            from fastweights.training.ray.plan import RayPlan  # Ray is an extra

            self.schedule: Schedule = "ray"
            self._ray = RayPlan(options, self.replicas, self.streams)
        else:
            self.schedule = _schedule(options.schedule, self.actor, self.learner)
            if self.schedule == "lockstep":
                _check_whole_batches(options)

    def __str__(self) -> str:
        devices = " and ".join(dict.fromkeys((str(self.actor), str(self.learner))))
        where = f"{self._ray}, learning on {self.learner}" if self._ray else devices
        count = self.replicas.count
        learners = f", {count} learners with {self.batch_size} of each batch" if count > 1 else ""
        return f"{'' if self._ray else f'{self.schedule} on '}{where}{learners}"

    def environments(self, step: int) -> list[Environments]:
        """Return the environments of all groups (one in lockstep), for a run that is at `step`.

        Environment i has the same seed in any group and with any learner. If Ray's actors have the
        environments, return a single one, for its spaces.
        """
        options, made = self.options, []
        first = environment_seed(options.seed, step, self.streams.start)
        if self._ray:
            return [make_environments(options, 1, first)]
        groups = 1 if self.schedule == "lockstep" else options.env_groups
        for size in _shares(len(self.streams), groups):
            made.append(make_environments(options, size, first))
            first += size
        return made

    def source(
        self,
        network: Network,
        environments: Sequence[Environments],
        step: int,
        stages: Stages,
    ) -> Source:
        """Return the source of rollouts by `network` on the result of `environments(step)`.

        `stages` are the main thread's.
        """
        if self._ray:
            environments[0].close()
            return self._ray.source(network, step, self.batch_size, self.learner, stages)
        seed, length = self.options.seed, self.options.unroll_length
        if self.schedule == "lockstep":
            return Lockstep(
                network,
                environments[0],
                length=length,
                device=self.actor,
                generator=self._generator(action_seed(seed, step, 0)),
                streams=self.streams,
                of=self.options.num_envs,
                graphed=self.options.cuda_graphs,
                stages=stages,
            )
        first = self.replicas.rank * len(environments)
        seeds = [action_seed(seed, step, first + i) for i in range(len(environments))]
        generators = [self._generator(seed) for seed in seeds]
        ahead = self.options.queue_size
        return Asynchronous(
            network,
            [Group(*pair) for pair in zip(environments, generators, strict=True)],
            length=length,
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

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.actor).manual_seed(seed)

    def _device(self, name: str | None, option: str) -> torch.device | None:
        if name is None:
            return None
        device = self.replicas.device(choose_device(name, option), option)
        return choose_device(str(device), option)


def _schedule(asked: str, actor: torch.device, learner: torch.device) -> Schedule:
    if asked == "lockstep" and actor != learner:
        raise ValueError(
            f"--schedule lockstep acts and learns with one network, and --actor-device is {actor} "
            f"while --learner-device is {learner}: leave both out, or --schedule asynchronous"
        )
    if asked != "auto":
        return asked
    on_gpu = "cuda" in (actor.type, learner.type)
    return "asynchronous" if on_gpu or actor != learner else "lockstep"


def _check_cuda_graphs(options: RunOptions, acting: torch.device) -> None:
    """Check that actions are chosen on a CUDA GPU; with Ray, the actors' GPUs count."""
    on_gpu = options.actor_gpus > 0 if options.engine == "ray" else acting.type == "cuda"
    if options.cuda_graphs and not on_gpu:
        how = "--actor-gpus" if options.engine == "ray" else "--device cuda"
        raise ValueError(
            f"--cuda-graphs needs actions to be chosen on a CUDA GPU, not on {acting.type}: leave "
            f"it out, --no-cuda-graphs, or choose them on such a GPU, {how}"
        )


def _check_minibatches(options: RunOptions, share: int) -> None:
    """Check one learner's share of a batch; `training/checks.py` checks the whole batch."""
    minibatches = options.learner.minibatches
    if share % minibatches:
        raise ValueError(
            f"--minibatches {minibatches} does not divide the {share} rollouts that each learner "
            f"has of a batch: try --minibatches {gcd(share, minibatches)}"
        )


def _check_whole_batches(options: RunOptions) -> None:
    if options.num_envs % options.batch_size:
        raise ValueError(
            f"--num-envs {options.num_envs} is not a multiple of --batch-size "
            f"{options.batch_size}: every update takes the rollouts of a whole batch of "
            f"environments; try --batch-size {gcd(options.num_envs, options.batch_size)}, or "
            "--schedule asynchronous"
        )


def _shares(total: int, groups: int) -> list[int]:
    """Return `total` environments split over `groups` as evenly as possible, at least one each."""
    groups = min(groups, total)
    each, more = divmod(total, groups)
    return [each + (group < more) for group in range(groups)]
