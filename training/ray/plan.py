"""Distribution of a run over Ray: the number of actors, their resources and environments."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from fastweights.agents import Network
from fastweights.envs import Environments
from fastweights.host import Stages, processors
from fastweights.training.options import RunOptions
from fastweights.training.ray.session import Session
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.asynchronous import slots
from fastweights.training.schedules.experience import Source
from fastweights.training.schedules.plan import Devices, Plan
from fastweights.training.seeds import action_seed, environment_seed


class RayPlan(Plan):
    """One learner's actors, `size` of them with `each` environments, and its connection to Ray.

    Raises:
        ValueError: Ray is not installed or does not answer, or the numbers are inconsistent;
            one line.
    """

    schedule = "ray"
    gpu_option = "--actor-gpus"

    def __init__(self, options: RunOptions, replicas: Replicas, devices: Devices):
        if not options.actor_gpus:
            cpu = torch.device("cpu")  # assumed to resemble this machine's
            devices = devices._replace(actor=cpu)
        super().__init__(options, replicas, devices)
        asked = options.num_actors and len(replicas.share(options.num_actors, "--num-actors"))
        if options.ray_address is None:
            self.size = asked or self._fitting(processors() // replicas.local_count)
            self._check_gpus()
            self.session = Session(None, self.size * options.actor_cpus)
        else:
            self.session = Session(options.ray_address)
            self.size = asked or self._fitting(self.session.cpus() // replicas.count)
        self.held.callback(self.session.close)
        self.each = len(self.streams) // self.size

    def acts_on_gpu(self, options: RunOptions) -> bool:
        """Return whether the actors have GPUs, which may be on other machines."""
        return options.actor_gpus > 0

    def where(self) -> str:
        """Return, in words, the number of actors and their devices."""
        actors = f"{self.size} Ray actors of {self.each} environments"
        kind = "GPUs" if self.options.actor_gpus else "CPUs"
        return f"{actors} on {kind}, learning on {self.learner}"

    def environments(self, step: int) -> Iterator[Environments]:
        """Make a single environment, for its spaces; the actors make the others."""
        return self.groups([1], step)

    def source(
        self, network: Network, environments: Sequence[Environments], step: int, stages: Stages
    ) -> Source:
        """Return the source of rollouts, and close the environment; see `Plan.source`."""
        from fastweights.training.ray.actors import RayActors
        from fastweights.training.ray.wire import rollout_form
        from fastweights.training.ray.worker import Job

        environments[0].close()
        options, ahead = self.options, self.options.queue_size
        own = replace(options, num_threads=max(1, int(options.actor_cpus)))

        def job(number: int, incarnation: int) -> Job:
            first = self.streams.start + number * self.each
            return Job(
                options=own.to_dict(),
                num_envs=self.each,
                environment_seed=environment_seed(options.seed, step, first, incarnation),
                action_seed=action_seed(options.seed, step, first // self.each, incarnation),
                device="cuda" if options.actor_gpus else "cpu",
            )

        return RayActors(
            network,
            self.session,
            job=job,
            size=self.size,
            cpus=options.actor_cpus,
            gpus=options.actor_gpus,
            form=rollout_form(network, options.unroll_length, self.each),
            slots=slots([self.each], self.batch_size, self.size if ahead is None else ahead),
            learner_device=self.learner,
            stages=stages,
        )

    def _fitting(self, cpus: int) -> int:
        """Return the number of actors for this many CPUs; environments are divided evenly."""
        most = max(1, int(cpus / max(1.0, self.options.actor_cpus)))
        return max(n for n in range(1, most + 1) if len(self.streams) % n == 0)

    def _check_gpus(self) -> None:
        here, actors = torch.cuda.device_count(), self.size * self.replicas.local_count
        if actors * self.options.actor_gpus > here:
            raise ValueError(
                f"--actor-gpus {self.options.actor_gpus:g} for each of {actors} actors exceeds "
                f"the {here} GPUs here: reduce --actor-gpus or --num-actors"
            )
