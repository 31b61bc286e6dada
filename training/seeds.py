"""Which random numbers a run's environments and actions draw from."""

import numpy as np

TEST_SEEDS = range(1_000_000, 1_010_000)  # of test games; training environments have higher ones
_OF_ENVIRONMENTS, _OF_ACTIONS = range(2)


def environment_seed(seed: int, step: int, first: int = 0, incarnation: int = 0) -> int:
    """Of the environment `first` of the run with `seed`; those after it add one each.

    Runs with seeds 1 and 2 have no environment in common. A resumed run, at agent step `step`,
    plays new games unless its environments are `Restorable`, which emulators are not. So does
    whoever takes the place of an actor that has died.
    """
    if incarnation:
        return _draw(_OF_ENVIRONMENTS, seed, step, incarnation, first)
    return _draw(_OF_ENVIRONMENTS, seed, step) + first


def action_seed(seed: int, step: int, group: int, incarnation: int = 0) -> int:
    """Of one group's actions."""
    return _draw(_OF_ACTIONS, seed, step, incarnation, group)


def _draw(*entropy: int) -> int:
    """Above test games' seeds, and with all environments' room below 2^31, where ale-py's end."""
    return TEST_SEEDS.stop + int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 2)
