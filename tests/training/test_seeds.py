"""Seeds of games: runs share none, and training games differ from test games."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from fastweights.agents.network import Network
from fastweights.host.stages import Stages
from fastweights.training.options import RunOptions
from fastweights.training.replicas import Replicas
from fastweights.training.schedules import asynchronous as schedules
from fastweights.training.schedules.choice import plan_of
from fastweights.training.seeds import TEST_SEEDS, action_seed, environment_seed

SEEDS, STEPS, INCARNATIONS = (0, 1, 2, 3, 1_000_000, 2**31 - 1), (0, 1600), (0, 1)


def test_runs_share_no_environment_nor_do_a_run_and_its_going_on():
    firsts = sorted(
        environment_seed(seed, step, 0, again)
        for seed, step, again in product(SEEDS, STEPS, INCARNATIONS)
    )
    assert all(after - before > 10_000 for before, after in pairwise(firsts))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_environment_has_the_same_seed_in_whichever_group(seed):
    assert environment_seed(seed, 0, 24) == environment_seed(seed, 0) + 24


@pytest.mark.parametrize(("seed", "step"), list(product(SEEDS, STEPS)))
def test_seeds_are_above_test_games_and_below_what_emulators_take(seed, step):
    for one in (environment_seed(seed, step), environment_seed(seed, step, 24, 1)):
        assert TEST_SEEDS.stop <= one < 2**31 - 100_000


def test_the_lowest_draws_are_no_test_games_either():
    """Of the first 600,000 seeds, this one has the lowest draw: 5,497 of a billion."""
    assert environment_seed(578_956, 0) - TEST_SEEDS.stop < 10_000
    assert environment_seed(578_956, 0) not in TEST_SEEDS


def test_groups_draw_actions_of_their_own():
    drawn = {
        action_seed(seed, step, group, again)
        for seed, step, group, again in product(SEEDS, STEPS, range(4), INCARNATIONS)
    }
    assert len(drawn) == len(SEEDS) * len(STEPS) * 4 * len(INCARNATIONS)


MAZES = RunOptions(env="TMaze", core="feedforward", device="cpu", num_envs=32)
GROUPS = replace(MAZES, schedule="asynchronous", env_groups=3)


def test_groups_play_the_games_of_a_single_group():
    (together,), groups = (plan_of(options).environments(0) for options in (MAZES, GROUPS))
    shown = [environments.reset().frame for environments in (together, *groups)]
    assert [len(frames) for frames in shown] == [32, 11, 11, 10]
    assert np.array_equal(shown[0], np.concatenate(shown[1:]))
    assert len(np.unique(shown[0], axis=0)) > 1


@pytest.mark.parametrize("options", [MAZES, GROUPS], ids=["together", "groups"])
def test_a_run_at_another_step_plays_other_games(options):
    plan = plan_of(options)

    def shown(step: int) -> np.ndarray:
        return np.concatenate([each.reset().frame for each in plan.environments(step)])

    assert np.array_equal(shown(1600), shown(1600))
    assert not np.array_equal(shown(0), shown(1600))


@pytest.mark.parametrize(("replicas", "first"), [(Replicas(), 0), (Replicas(rank=1, count=2), 3)])
def test_each_group_has_a_generator_of_its_own(replicas, first, monkeypatch):
    plan, handed = plan_of(GROUPS, replicas), []
    monkeypatch.setattr(schedules, "Asynchronous", lambda _, groups, **how: handed.extend(groups))
    environments = list(plan.environments(1600))
    network = Network(GROUPS.network(environments[0].frame_shape, environments[0].num_actions))
    plan.source(network, environments, 1600, Stages("learner"))
    assert [group.environments for group in handed] == environments
    drawn_from = [group.generator.initial_seed() for group in handed]
    assert drawn_from == [action_seed(1, 1600, first + group) for group in range(3)]
