"""A run's options made real, in two steps: threads and devices; environments and the network."""

import torch

from agents.network import Network
from envs.interface import Environments
from kernels import use_backend
from launch.devices import compute_exactly, use_threads
from launch.memory_needs import check_fits
from launch.options import RunOptions
from launch.replicas import Replicas
from launch.schedules import Plan


def plan_for(options: RunOptions, replicas: Replicas | None = None) -> tuple[RunOptions, Plan]:
    """Sets up torch for the run; returns the options with the precision `auto` came to.

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
