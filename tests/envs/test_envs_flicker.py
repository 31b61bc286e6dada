"""Flickering pictures, against the same game without flicker: only the pictures differ."""

import numpy as np
import pytest

from fastweights import envs

STEPS = 120
# The game is never black by itself, and so short that several games end and begin.
GAME, SHORT = "Breakout", {"max_frames": 160}


def play(steps=STEPS, num_envs=3, seed=4, **options):
    """Return frames, and rows without frames, under random actions of each environment."""
    environments = envs.make(GAME, num_envs, seed=seed, options=SHORT | options, num_threads=1)
    # One seed for each environment, so that it acts the same in any batch.
    actions = np.stack(
        [
            np.random.default_rng(seed + i).integers(0, environments.num_actions, steps)
            for i in range(num_envs)
        ],
        axis=1,
    )
    rows = [environments.reset(), *(environments.step(row) for row in actions)]
    return np.stack([row.frame for row in rows]), [row[1:] for row in rows]


def same(ones, others):
    return all(
        np.array_equal(one[0], other[0])
        and np.array_equal(one[1], other[1])
        and one[2:] == other[2:]
        for one, other in zip(ones, others, strict=True)
    )


@pytest.fixture(scope="module")
def single():
    return play(frame_stack=1)


@pytest.fixture(scope="module")
def flickering():
    return play(frame_stack=1, flicker=0.5)


def test_pictures_are_whole_or_blank_and_the_game_is_the_same(single, flickering):
    (clear, play), (seen, flickered) = single, flickering
    blank = ~seen.any(axis=(2, 3, 4))
    assert clear.any(axis=(2, 3, 4)).all()
    np.testing.assert_array_equal(seen, np.where(blank[..., None, None, None], 0, clear))
    assert same(play, flickered)
    assert sum(len(row[2]) for row in play) >= 6  # several games ended and began


def test_half_are_blank_independently_of_the_step_before_and_of_the_others(flickering):
    blank = ~flickering[0].any(axis=(2, 3, 4))
    share = blank.mean()
    spread = 0.5 / np.sqrt(blank.size)
    assert abs(share - 0.5) < 4 * spread
    pairs = [(blank[1:], blank[:-1]), (blank[:, 0], blank[:, 1]), (blank[:, 1], blank[:, 2])]
    for one, other in pairs:
        assert abs((one & other).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / one.size)


def test_the_same_seed_blanks_the_same_whatever_the_number_of_environments(flickering):
    np.testing.assert_array_equal(play(frame_stack=1, flicker=0.5)[0], flickering[0])
    fewer, _ = play(num_envs=1, seed=5, frame_stack=1, flicker=0.5)
    np.testing.assert_array_equal(fewer[:, 0], flickering[0][:, 1])
    other, _ = play(num_envs=1, seed=40, frame_stack=1, flicker=0.5)
    blank, others = (~frames[:, 0].any(axis=(1, 2, 3)) for frames in (flickering[0], other))
    assert 0.4 < (blank != others).mean() < 0.6


def test_reset_starts_the_blanks_over():
    environments = envs.make(GAME, 2, seed=4, options={"flicker": 0.5, "frame_stack": 1})
    rounds = [
        [environments.reset().frame, *(environments.step(np.ones(2, int)).frame for _ in range(30))]
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*rounds)


def test_a_stack_holds_what_was_seen(flickering):
    """Each picture is blanked once, and is then blank in all stacks that contain it."""
    clear, _ = play()
    seen, _ = play(flicker=0.5)
    blank = ~flickering[0].any(axis=(2, 3, 4))  # [T, B], of each newest picture
    for env in range(3):
        for back in range(4):
            hidden = np.concatenate([np.ones(back, bool), blank[: STEPS + 1 - back, env]])
            expected = np.where(hidden[:, None, None], 0, clear[:, env, 3 - back])
            np.testing.assert_array_equal(seen[:, env, 3 - back], expected)


@pytest.mark.parametrize(("flicker", "share"), [(0, 0.0), (1, 1.0)])
def test_the_ends_of_the_range(flicker, share):
    frames, _ = play(steps=20, frame_stack=1, flicker=flicker)
    assert (~frames.any(axis=(2, 3, 4))).mean() == share


def test_rendering_shows_the_game_itself():
    environments = envs.make(GAME, 1, options={"flicker": 1.0}, render=True)
    assert not environments.reset().frame.any()
    assert environments.render().any()
