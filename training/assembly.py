"""Set-up of a run from its options: threads and devices, then network, environments and source."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from fastweights.agents import Network
from fastweights.envs import Environments, resolve
from fastweights.host import Stages, compute_exactly, use_threads, user_input
from fastweights.kernels import use_backend
from fastweights.training.checks import check_kernels
from fastweights.training.environments import make_environments
from fastweights.training.memory_needs import check_memory
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.choice import plan_of
from fastweights.training.schedules.experience import Source
from fastweights.training.schedules.plan import Plan

log = logging.getLogger("fastweights")


def plan_for(options: RunOptions, replicas: Replicas | None = None) -> tuple[RunOptions, Plan]:
    """Set up torch for the run; return the options with `auto` resolved, and the plan.

    Args:
        options: the run's options.
        replicas: this process's place among several learners.

    Raises:
        ValueError: this machine lacks something that the options require; one line.
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

    Errors in users' own games thus appear before a folder is created. Atari needs no such test.
    """
    if resolve(options.env).rom is not None:
        return
    with closing(make_environments(options, 1, options.seed)) as environments:
        environments.reset()
        environments.step(np.zeros(1, np.int64))


class Assembled(NamedTuple):
    """A run's network and the source of its rollouts."""

    network: Network
    source: Source


@contextmanager
def assembled(
    options: RunOptions, plan: Plan, stages: Stages, step: int = 0
) -> Iterator[Assembled]:
    """Provide a run's network with initial weights, and its source of rollouts at `step`.

    Seeds torch. Environments, threads and Ray end with the block, even if set-up fails halfway.

    Args:
        options: the run's options, resolved by `plan_for`.
        plan: the run's plan; it is closed with the block.
        stages: the stages of this thread, the learner's.
        step: agent steps that the run has already made.

    Raises:
        UserError: a game or network that cannot be created, or --kernels that does not support the
            core; one line.
    """
    with closing(plan), ExitStack() as made:
        with user_input():
            environments = [made.enter_context(closing(e)) for e in plan.environments(step)]
            network = _network(options, plan, environments[0])
        source = plan.source(network, environments, step, stages)
        made.pop_all()  # the environments are the source's now
        with closing(source):
            yield Assembled(network, source)


def _network(options: RunOptions, plan: Plan, environments: Environments) -> Network:
    config = options.network(environments.frame_shape, environments.num_actions)
    with torch.device("meta"):
        check_memory(Network(config), plan.learner)
    torch.manual_seed(options.seed)
    network = Network(config).to(plan.learner)
    if _drops_units(network):
        log.warning(
            "note: core %s has dropout, which acting and learning sample separately: the ratios of "
            "their policies are noisy from the first gradient step on",
            options.core,
        )
    for device in dict.fromkeys((plan.learner, plan.actor)):
        check_kernels(network.core, device)
    return network


def _drops_units(network: Network) -> bool:
    """Return whether the network is random in training mode."""
    modules = list(network.modules())
    of_layers = [module.p for module in modules if isinstance(module, _DropoutNd)]
    of_pytorch = [module.dropout for module in modules if isinstance(module, nn.RNNBase)]
    return any(rate > 0 for rate in (*of_layers, *of_pytorch))
