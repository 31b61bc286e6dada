"""Seeds of games: runs share none, and train on no test game."""

from itertools import pairwise, product

import pytest

from launch.seeds import TEST_SEEDS, action_seed, environment_seed

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


def test_groups_draw_actions_of_their_own():
    drawn = {
        action_seed(seed, step, group, again)
        for seed, step, group, again in product(SEEDS, STEPS, range(4), INCARNATIONS)
    }
    assert len(drawn) == len(SEEDS) * len(STEPS) * 4 * len(INCARNATIONS)
