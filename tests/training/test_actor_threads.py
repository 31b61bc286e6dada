"""Lockstep may choose actions with another number of CPU threads than it learns with."""

from dataclasses import replace

import pytest
import torch

from fastweights.agents import Network
from fastweights.host import Stages
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.choice import plan_of
from fastweights.training.schedules.lockstep import Lockstep

MAZES = RunOptions(
    env="TMaze", core="feedforward", device="cpu", num_envs=2, batch_size=2, unroll_length=3
)
LEARNING = 3


def begun(actor_threads: int) -> tuple[Lockstep, list[int]]:
    """Return a source of rollouts, and the list of the threads that each step is played with."""
    plan = plan_of(replace(MAZES, actor_threads=actor_threads), Replicas())
    (environments,) = plan.environments(0)
    network = Network(plan.options.network(environments.frame_shape, environments.num_actions))
    threads: list[int] = []
    network.register_forward_hook(lambda *_: threads.append(torch.get_num_threads()))
    return plan.source(network, [environments], 0, Stages("main")), threads


@pytest.mark.parametrize(("asked", "acting"), [(0, LEARNING), (1, 1), (5, 5)])
def test_actions_are_chosen_with_their_own_number_of_threads(asked, acting):
    torch.set_num_threads(LEARNING)
    source, threads = begun(asked)
    with source:
        next(source.rollouts())
        assert threads == [acting] * MAZES.unroll_length
        assert torch.get_num_threads() == LEARNING


def test_the_learner_gets_its_threads_back_from_a_game_that_fails(monkeypatch):
    torch.set_num_threads(LEARNING)
    source, threads = begun(1)

    def fail(action):
        raise RuntimeError(f"with {torch.get_num_threads()}")

    with source:
        monkeypatch.setattr(source._environments, "step", fail)
        with pytest.raises(RuntimeError, match="with 1"):
            next(source.rollouts())
    assert threads == [1] and torch.get_num_threads() == LEARNING
