"""Games whose `render()` returns something odd: a clip of what can be drawn, else one line."""

from typing import ClassVar

import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest
from small_runs import train

from fastweights import envs
from fastweights.envs import BrokenEnvironment
from fastweights.launch import watch
from fastweights.records import read_meta

GAME = "fastweights-tests/Odd-v0"
GREY = np.arange(1600, dtype=np.uint8).reshape(40, 40)


def growing(time: int) -> np.ndarray:
    return np.zeros((40 + 2 * time, 40, 3), np.uint8)


def failing(time: int) -> np.ndarray:
    raise ValueError("no\ndisplay")


DRAWN = {
    "grey": lambda time: GREY,
    "one channel": lambda time: GREY[..., None],
    "transparent": lambda time: np.stack([GREY, GREY, GREY, 0 * GREY], -1),
}
REFUSED = {
    "none": (lambda time: None, "returned None: return a picture"),
    "a word": (lambda time: "picture", "returned a str: return a picture"),
    "floats": (lambda time: np.zeros((40, 40, 3)), r"returned float64 of shape \(40, 40, 3\): ret"),
    "a row": (lambda time: GREY[0], r"returned uint8 of shape \(40,\): return uint8"),
    "growing": (growing, r"of shape \(42, 40, 3\) after \(40, 40, 3\): keep one size"),
    "failing": (failing, "raised ValueError: no display"),
}


class Odd(gymnasium.Env):
    """A game of three steps that draws `picture` at each."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 30}
    picture = staticmethod(lambda time: GREY)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), float(action), self.time == 3, False, {}

    def render(self):
        return self.picture(self.time)


@pytest.fixture(autouse=True)
def _registered(register_game):
    register_game(GAME, entry_point=Odd)


def draws(monkeypatch, picture) -> None:
    monkeypatch.setattr(Odd, "picture", staticmethod(picture))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train in a game that draws grey pictures, and return the run and what was printed."""
    gymnasium.register(GAME, entry_point=Odd)
    folder = tmp_path_factory.mktemp("runs")
    try:
        assert train(folder, "run", "--env", GAME, "--total-steps", 40) == 0
    finally:
        del gymnasium.registry[GAME]
    return folder / "run"


@pytest.mark.parametrize("kind", DRAWN)
def test_a_picture_of_any_channels_is_drawn_in_colour(kind, monkeypatch):
    draws(monkeypatch, DRAWN[kind])
    environments = envs.make(GAME, 2, render=True)
    environments.reset()
    assert (environments.render() == GREY[..., None].repeat(3, -1)).all()
    assert environments.steps_per_second == 30


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_picture_is_named(kind, monkeypatch):
    picture, says = REFUSED[kind]
    draws(monkeypatch, picture)
    environments = envs.make(GAME, 1, render=True)
    environments.reset()
    with pytest.raises(BrokenEnvironment, match=rf"{GAME}: render\(\) .*{says}"):
        for _ in range(2):
            environments.render()
            environments.step(np.array([1]))


@pytest.mark.parametrize("kind", ["floats", "growing", "failing"])
def test_training_ends_well_without_a_clip(kind, tmp_path, monkeypatch, capsys):
    draws(monkeypatch, REFUSED[kind][0])
    games = ("--evaluate-episodes", 2, "--total-steps", 40)
    assert train(tmp_path, "run", "--env", GAME, *games) == 0
    said = capsys.readouterr()
    assert f"note: no clip: {GAME}: render() " in said.err and "after training" in said.out
    assert read_meta(tmp_path / "run")["successful"]
    clips = tmp_path / "run" / "clips"
    assert not clips.exists() or not list(clips.iterdir())


def test_a_film_of_grey_pictures(run, monkeypatch):
    out = run.parent / "film.mp4"
    asked = [str(run), "--env", GAME, "--out", str(out), "--num-threads", "1"]
    assert watch.main(asked) == 0
    assert imageio.immeta(out)["fps"] == 30


def test_a_film_of_what_is_no_picture_is_one_line(run, monkeypatch, capsys):
    draws(monkeypatch, failing)
    with pytest.raises(SystemExit, match="2"):
        watch.main([str(run), "--env", GAME, "--num-threads", "1"])
    assert f"error: {GAME}: render() raised ValueError: no display" in capsys.readouterr().err
