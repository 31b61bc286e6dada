"""The choice of a run's schedule."""

import torch

from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.asynchronous import AsynchronousPlan
from fastweights.training.schedules.lockstep import LockstepPlan
from fastweights.training.schedules.plan import Devices, Plan


def plan_of(options: RunOptions, replicas: Replicas | None = None) -> Plan:
    """Return the plan of a run.

    Raises:
        ValueError: a missing device, no Ray, or options that contradict each other; one line.
    """
    replicas = replicas or Replicas()
    devices = Devices.of(options, replicas)
    return _kind(options, *devices)(options, replicas, devices)


def _kind(options: RunOptions, actor: torch.device, learner: torch.device) -> type[Plan]:
    asked = options.schedule
    if options.engine == "ray":
        from fastweights.training.ray.plan import RayPlan  # Ray is an extra

        return RayPlan
    if asked == "lockstep" and actor != learner:
        raise ValueError(
            f"--schedule lockstep acts and learns with one network, but --actor-device is {actor} "
            f"and --learner-device is {learner}: leave both out, or use --schedule asynchronous"
        )
    on_gpu = "cuda" in (actor.type, learner.type)
    overlaps = on_gpu or actor != learner if asked == "auto" else asked == "asynchronous"
    return AsynchronousPlan if overlaps else LockstepPlan
