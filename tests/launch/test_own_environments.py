"""User-made environments that break Gymnasium's interface: one error line, no run folder."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Text, Tuple

from fastweights.launch import atari

GAME = "fastweights-tests/Own-v0"
SMALL = ["--env", GAME, "--core", "lstm", "--core-width", "8", "--num-threads", "1"]
SMALL += ["--num-envs", "2", "--batch-size", "2", "--unroll-length", "4", "--total-steps", "80"]


class Own(gymnasium.Env):
    """An environment with changeable answers; from step `late` on it shows `wrong`."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)
    first, wrong, late = np.zeros(3, np.float32), None, 10**9
    reward: object = 1.0
    values = 5

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.first, {}

    def step(self, action):
        self.time += 1
        shown = self.first if self.time < self.late else self.wrong
        return (shown, self.reward, self.time == 30, False, {})[: self.values]


@pytest.fixture
def train(tmp_path, capsys):
    """Return a function that trains on a changed `Own` and returns output and run folders."""

    def run(*methods, **changes):
        kind = type("Changed", (Own,), changes | {one.__name__: one for one in methods})
        gymnasium.register(GAME, entry_point=kind)
        with pytest.raises(SystemExit, match="2"):
            atari.main([*SMALL, "--savedir", str(tmp_path / "runs"), "--xpid", "a"])
        said = capsys.readouterr().err
        return said, [path.name for path in tmp_path.glob("runs/*")]

    yield run
    gymnasium.registry.pop(GAME, None)


def reset(self, *, seed=None, options=None):
    return self.first


@pytest.mark.parametrize(
    ("methods", "changes", "says"),
    [
        ((), {"first": np.zeros(4, np.float32)}, "reset() returned an observation of shape (4,)"),
        ((), {"first": np.zeros((1, 3))}, "its observation_space is Box(-1.0, 1.0, (3,), float32)"),
        ((), {"first": np.zeros(3, complex)}, "shape (3,) and kind complex128"),
        ((), {"late": 1, "wrong": np.zeros(2)}, "step() returned an observation of shape (2,)"),
        (
            (),
            {"values": 4},
            "step() returned 4 values: return observation, reward, terminated, tru",
        ),
        ((), {"reward": None}, "step() returned the reward None: return one number"),
        ((), {"reward": np.ones(2)}, "step() returned the reward array([1., 1.])"),
        ((reset,), {}, "reset() returned ndarray: return observation, info"),
        (
            (),
            {"observation_space": Discrete(3), "first": 3},
            "an observation of 3, but its observation_space is Discrete(3): make them agree",
        ),
        (
            (),
            {"observation_space": Tuple((Discrete(3), Discrete(2))), "first": (2, 2)},
            "observation of (2, 2), but its observation_space is Tuple(Discrete(3), Discrete(2))",
        ),
        (
            (),
            {"observation_space": Tuple((Discrete(3), Discrete(2))), "first": (2,)},
            "observation of (2,), but its observation_space is Tuple(Discrete(3), Discrete(2))",
        ),
    ],
)
def test_what_breaks_the_interface_is_one_line_and_leaves_no_folder(methods, changes, says, train):
    said, folders = train(*methods, **changes)
    assert said.startswith(f"error: {GAME}: ") and said.count("\n") == 1
    assert says in said
    assert not folders


def test_a_reset_without_a_seed_is_told_how_to_declare_it(train):
    def reset(self):
        return self.first, {}

    said, folders = train(reset)
    assert f"{GAME}: reset() does not take 'seed': declare reset(self, *, seed=None, " in said
    assert said.count("\n") == 1 and not folders


def test_what_breaks_later_is_one_line_too_and_what_was_learned_is_saved(train):
    said, folders = train(late=11, wrong=np.zeros(2))
    *notes, error = said.splitlines()
    assert error.startswith(f"error: {GAME}: step() returned an observation of shape (2,)")
    assert ["saved at " in note for note in notes] == [True]
    assert sorted(folders) == ["a", "latest"]


def test_a_bug_of_the_environments_own_keeps_its_traceback_and_leaves_no_folder(
    register_game, tmp_path
):
    class Failing(Own):
        def step(self, action):
            return {}["nothing"]

    register_game(GAME, entry_point=Failing)
    with pytest.raises(KeyError, match="nothing"):
        atari.main([*SMALL, "--savedir", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (
            {"observation_space": Dict(a=Box(0, 255, (8, 8), np.uint8))},
            "gymnasium.wrappers.FlattenObservation",
        ),
        (
            {"observation_space": Dict(a=Discrete(2), b=Sequence(Discrete(2)))},
            "gymnasium.wrappers.TransformObservation",
        ),
        ({"observation_space": Box(0, 1, (8, 8, 3))}, "gymnasium.wrappers.FlattenObservation"),
        (
            {"observation_space": Box(0, 255, (4, 8, 8, 3), np.uint8)},
            "gymnasium.wrappers.ReshapeObservation",
        ),
        ({"action_space": Box(0, 1, (2,))}, "gymnasium.wrappers.DiscretizeAction"),
        ({"action_space": MultiDiscrete([40, 40])}, "gymnasium.wrappers.TransformAction"),
        ({"observation_space": Text(5), "first": "a"}, "gymnasium.wrappers."),
    ],
)
def test_a_space_that_is_refused_has_a_wrapper_that_helps(space, says, train):
    said, folders = train(**space)
    assert said.startswith(f"error: {GAME} has ") and said.count("\n") == 1
    assert f"wrap it in {says}" in said
    assert not folders
