"""Rendering: a second emulator in colour shows exactly the game that the learner plays."""

import ale_py
import numpy as np
import pytest
from ale_py import ALEInterface, roms

from fastweights import envs


def test_the_twin_stays_in_step():
    environments = envs.make("Breakout", 2, seed=3, options={"sticky": 0.25}, render=True)
    environments.reset()
    rng, games = np.random.default_rng(0), 0
    for _ in range(500):
        # Each step compares the rewards and lives of both emulators.
        games += len(environments.step(rng.integers(0, environments.num_actions, 2)).episodes)
    picture = environments.render()
    assert picture.shape == (2, 210, 160, 3)
    assert picture.dtype == np.uint8
    assert games


def test_pictures_are_the_emulators():
    """A picture is the maximum of two frames, in native size and with channels in RGB order."""
    protocol = {"noop_max": 0, "fire_at_reset": False}
    environments = envs.make("Breakout", 1, seed=5, options=protocol, render=True)
    ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 5)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path("breakout"))
    environments.reset()
    np.testing.assert_array_equal(environments.render()[0], ale.getScreenRGB())
    for action in [1, 2, 2, 3, 0]:
        environments.step(np.array([action]))
        frames = []
        for _ in range(4):
            ale.act(ale.getMinimalActionSet()[action])
            frames.append(ale.getScreenRGB())
        np.testing.assert_array_equal(environments.render()[0], np.maximum(*frames[2:]))


def test_rendering_changes_nothing():
    plain, rendered = (envs.make("Qbert", 1, seed=1, render=render) for render in (False, True))
    np.testing.assert_array_equal(plain.reset().frame, rendered.reset().frame)
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = rng.integers(0, 6, 1)
        one, two = plain.step(action), rendered.step(action)
        np.testing.assert_array_equal(one.frame, two.frame)
        rendered.render()


def test_a_game_of_another_height_keeps_it():
    environments = envs.make("Pooyan", 1, render=True)
    environments.reset()
    assert environments.render().shape == (1, 220, 160, 3)


@pytest.mark.parametrize("name", ["Breakout", "Catch", "CartPole-v1"])
def test_no_pictures_unless_asked_for(name):
    environments = envs.make(name, 1)
    environments.reset()
    with pytest.raises(ValueError, match="render=True"):
        environments.render()
