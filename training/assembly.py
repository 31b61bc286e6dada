"""Set-up of a run from its options, in two steps: threads and devices; environments and network."""

from contextlib import closing
from copy import deepcopy

import numpy as np
import torch

from fastweights.agents import Network
from fastweights.cores import Core
from fastweights.envs import Environments, resolve
from fastweights.host import compute_exactly, use_threads
from fastweights.kernels import use_backend
from fastweights.training.environments import make_environments
from fastweights.training.memory_needs import check_memory
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.choice import plan_of
from fastweights.training.schedules.plan import Plan


def plan_for(options: RunOptions, replicas: Replicas | None = None) -> tuple[RunOptions, Plan]:
    """Set up torch for the run; return the options with `auto` resolved, and the plan.

    Args:
        options: the run's options.
        replicas: this process's place among several learners.

    Raises:
        ValueError: this machine lacks what the options need; one line.
    """
    if options.kernels != "auto":
        use_backend(options.kernels)
    replicas = replicas or Replicas()
    use_threads(options.num_threads, replicas.local_count)
    plan = plan_of(options, replicas)
    compute_exactly(same_bits=plan.schedule == "lockstep")
    return plan.options, plan


def try_out(options: RunOptions) -> None:
    """Reset and step one environment of a run that has no folder yet.

    Errors of users' own games appear here, before a folder is made. Atari needs no such test.
    """
    if resolve(options.env).rom is not None:
        return
    with closing(make_environments(options, 1, options.seed)) as environments:
        environments.reset()
        environments.step(np.zeros(1, np.int64))


def assemble(options: RunOptions, plan: Plan, step: int = 0) -> tuple[list[Environments], Network]:
    """Return the environments of a run at `step` agent steps, and its network with initial weights.

    Seeds torch.

    Raises:
        ValueError: a game or a network that cannot be made, or --kernels that the core cannot run
            on; one line.
    """
    environments = plan.environments(step)
    config = options.network(environments[0].frame_shape, environments[0].num_actions)
    with torch.device("meta"):
        check_memory(Network(config), plan.learner)
    torch.manual_seed(options.seed)
    network = Network(config).to(plan.learner)
    for device in dict.fromkeys((plan.learner, plan.actor)):
        check_kernels(network.core, options.kernels, device)
    return environments, network


def check_kernels(core: Core, kernels: str, device: torch.device) -> None:
    """Raise a one-line `ValueError` if `core` on `device` cannot run on the forced backend."""
    if kernels == "auto":
        return
    try:
        with torch.no_grad():
            there = deepcopy(core).eval().to(device)  # draws no random numbers for dropout
            there(torch.zeros(1, 1, core.input_size, device=device))
    except ValueError as error:
        raise ValueError(f"--kernels {kernels}: {error}") from error
