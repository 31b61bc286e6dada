"""A run's options made real, in two steps: threads and devices; environments and the network."""

from contextlib import closing

import numpy as np
import torch

from fastweights.agents import Network
from fastweights.envs import Environments, resolve
from fastweights.host.devices import compute_exactly, use_threads
from fastweights.kernels import use_backend
from fastweights.training.environments import make_environments
from fastweights.training.memory_needs import check_fits
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.plan import Plan


def plan_for(options: RunOptions, replicas: Replicas | None = None) -> tuple[RunOptions, Plan]:
    """Sets up torch for the run; returns the options with what `auto` came to.

    `replicas`: this process's place among the learners, where there are several.
    Raises a one-line `ValueError` for what this machine has not.
    """
    if options.kernels != "auto":
        use_backend(options.kernels)
    replicas = replicas or Replicas()
    use_threads(options.num_threads, replicas.local_count)
    plan = Plan(options, replicas)
    compute_exactly(same_bits=plan.schedule == "lockstep")
    return plan.options, plan


def try_out(options: RunOptions) -> None:
    """Resets and steps one environment of a run that has no folder yet.

    Games of people's own fail there if they fail at all; Atari's do not. Raises what they raise.
    """
    if resolve(options.env).rom is not None:
        return
    with closing(make_environments(options, 1, options.seed)) as environments:
        environments.reset()
        environments.step(np.zeros(1, np.int64))


def build(options: RunOptions, plan: Plan, step: int = 0) -> tuple[list[Environments], Network]:
    """The environments of a run at `step` agent steps, and its network as it is drawn.

    Seeds torch. Raises a one-line `ValueError` for a game or a network that cannot be.
    """
    environments = plan.environments(step)
    config = options.network(environments[0].frame_shape, environments[0].num_actions)
    with torch.device("meta"):
        check_fits(Network(config), plan.learner)
    torch.manual_seed(options.seed)
    return environments, Network(config).to(plan.learner)
