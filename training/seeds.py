"""Seeds of a run's environments and actions, and of random numbers within a network."""

import numpy as np

TEST_SEEDS = range(1_000_000, 1_010_000)  # for test games; training environments use higher seeds
_OF_ENVIRONMENTS, _OF_ACTIONS, _OF_NETWORKS = range(3)


def environment_seed(seed: int, step: int, first: int = 0, incarnation: int = 0) -> int:
    """Return the seed of environment `first` of the run with `seed`; each later one adds 1.

    Runs with seeds 1 and 2 share no environment seeds. A run resumed at agent step `step` plays new
    games unless its environments are `Restorable`, which emulators are not. The replacement of a
    dead actor also plays new games.
    """
    if incarnation:
        return _draw(_OF_ENVIRONMENTS, seed, step, incarnation, first)
    return _draw(_OF_ENVIRONMENTS, seed, step) + first


def action_seed(seed: int, step: int, group: int, incarnation: int = 0) -> int:
    """Return the seed of one group's actions."""
    return _draw(_OF_ACTIONS, seed, step, incarnation, group)


def network_seed(seed: int, step: int, learner: int) -> int:
    """Return the seed of torch's own random numbers, which dropout uses, in one of the learners."""
    return _draw(_OF_NETWORKS, seed, step, learner)


def _draw(*entropy: int) -> int:
    """Return a seed above those of test games, with room for all environments below 2^31."""
    return TEST_SEEDS.stop + int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 2)
