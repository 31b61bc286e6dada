"""Which random numbers a run's environments and actions draw from."""

import numpy as np

TEST_SEEDS = range(1_000_000, 1_010_000)  # of test games; training environments have others


def environment_seed(seed: int, step: int, first: int = 0, incarnation: int = 0) -> int:
    """Of the environment `first`; those after it add one each.

    A resumed run, at agent step `step`, plays new games: its emulators cannot be put back where
    they were. So does whoever takes the place of an actor that has died.
    """
    if incarnation:
        return _draw(seed, step, first, incarnation)
    return (seed if step == 0 else _draw(seed, step)) + first


def action_seed(seed: int, step: int, group: int, incarnation: int = 0) -> int:
    """Of one group's actions."""
    if incarnation:
        return _draw(seed, step, group, incarnation, 1)
    return seed if step == group == 0 else _draw(seed, step, group)


def _draw(*entropy: int) -> int:
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 2)
