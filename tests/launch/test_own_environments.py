"""User-made environments that break Gymnasium's interface: one error line, no run folder."""

import shlex
import traceback

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Space, Text, Tuple

from fastweights.launch import atari, evaluate, export
from fastweights.records.log_table import read_logs

GAME = "fastweights-tests/Own-v0"
SMALL = ["--env", GAME, "--core", "lstm", "--core-width", "8", "--num-threads", "1"]
SMALL += ["--num-envs", "2", "--batch-size", "2", "--unroll-length", "4", "--total-steps", "80"]


class Own(gymnasium.Env):
    """An environment with changeable answers; from step `late` on it shows `wrong`."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)
    first, wrong, late = np.zeros(3, np.float32), None, 10**9
    reward: object = 1.0
    terminated: object = None  # after 30 steps
    truncated: object = False
    info: object = {}
    values = 5

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.first, {}

    def step(self, action):
        self.time += 1
        shown = self.first if self.time < self.late else self.wrong
        ended = self.time == 30 if self.terminated is None else self.terminated
        return (shown, self.reward, ended, self.truncated, self.info)[: self.values]


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
        ((), {"first": [0.0, [1.0], 2.0]}, "returned an observation of [0.0, [1.0], 2.0], but its"),
        ((), {"late": 1, "wrong": np.zeros(2)}, "step() returned an observation of shape (2,)"),
        (
            (),
            {"values": 4},
            "step() returned 4 values: return observation, reward, terminated, tru",
        ),
        ((), {"reward": None}, "step() returned the reward None: return one number"),
        ((), {"reward": np.ones(2)}, "step() returned the reward array([1., 1.])"),
        ((), {"reward": np.ones(1)}, "step() returned the reward array([1.]): return one number"),
        (
            (),
            {"reward": [1.0, [2.0]]},
            "step() returned the reward [1.0, [2.0]]: return one number",
        ),
        ((), {"terminated": "no"}, "step() returned terminated = 'no': return true or false"),
        ((), {"truncated": None}, "step() returned truncated = None: return true or false"),
        ((), {"info": None}, "step() returned the info None: return a dict"),
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


def exits(self, *_, **__):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("__init__", f"the constructor of {GAME} called sys.exit(0): raise an error that says"),
        ("reset", f"{GAME}: reset() called sys.exit(0)"),
        ("step", f"{GAME}: step(), or the reset() after an episode, called sys.exit(0)"),
        ("close", f"{GAME}: close() called sys.exit(0)"),
    ],
)
def test_a_game_that_ends_the_program_is_one_line_and_leaves_no_folder(
    method, says, register_game, tmp_path, capsys
):
    register_game(GAME, entry_point=type("Quits", (Own,), {method: exits}))
    with pytest.raises(SystemExit) as ended:
        atari.main([*SMALL, "--savedir", str(tmp_path / "runs")])
    assert ended.value.code == 2
    assert f"error: {says}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_module_that_ends_the_program_is_one_line(own_module, tmp_path, capsys):
    own_module("quits_at_once", "import sys\nsys.exit(0)\n")
    with pytest.raises(SystemExit) as ended:
        atari.main(["--env", "quits_at_once:Game-v0", "--savedir", str(tmp_path / "runs")])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "error: the module of 'quits_at_once:Game-v0' called sys.exit(0)" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("schedule", ["lockstep", "asynchronous"])
def test_a_game_that_ends_the_program_later_ends_the_run_with_a_line(
    schedule, register_game, tmp_path, capsys
):
    class Quits(Own):
        def step(self, action):
            if self.time == 20:
                raise SystemExit
            return super().step(action)

    register_game(GAME, entry_point=Quits)
    with pytest.raises(SystemExit) as ended:
        atari.main([*SMALL, "--savedir", str(tmp_path), "--xpid", "a", "--schedule", schedule])
    assert ended.value.code == 2
    *_, error = capsys.readouterr().err.splitlines()
    says = f"error: {GAME}: step(), or the reset() after an episode, called sys.exit(None): raise"
    assert error.startswith(says)
    assert (tmp_path / "a" / "model.tar").exists()  # what was learned is saved


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


class Mission(Space):
    """A kind of space that does not say whether it can be flattened, such as MiniGrid's text."""


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (
            {"observation_space": Dict(a=Box(0, 255, (8, 8), np.uint8))},
            "gymnasium.wrappers.TransformObservation, for example to select one part",
        ),
        ({"observation_space": Dict(a=Discrete(2), b=Mission())}, "gymnasium.wrappers.Transform"),
        ({"observation_space": Mission()}, "gymnasium.wrappers.TransformObservation\n"),
        ({"observation_space": Sequence(Discrete(2))}, "gymnasium.wrappers.TransformObservation\n"),
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
    assert f"wrap the environment in {says}" in said
    assert not folders


class Sized(Own):
    def __init__(self, level: str = "1", size=3, nothing=0):
        len(size)  # a bug: a number has no length


@pytest.mark.parametrize("options", [(), ("level=2",), ("size=2", "nothing=1")])
def test_a_type_error_in_the_constructor_keeps_its_traceback(options, register_game, tmp_path):
    register_game(GAME, entry_point=Sized)
    given = ("--env-options", *options) if options else ()
    with pytest.raises(TypeError, match=r"object of type 'int' has no len") as raised:
        atari.main([*SMALL, *given, "--savedir", str(tmp_path / "runs")])
    shown = "".join(traceback.format_exception(raised.value))
    assert "len(size)  # a bug: a number has no length" in shown
    assert not (tmp_path / "runs").exists()


class Level(Own):
    def __init__(self, level: str = "1"):
        {"1": "easy"}[level]
        [][0]  # a bug


def test_a_value_that_is_looked_up_in_vain_is_one_line_and_a_bug_is_not(
    register_game, tmp_path, capsys
):
    register_game(GAME, entry_point=Level)
    where = ("--savedir", str(tmp_path / "runs"))
    with pytest.raises(SystemExit, match="2"):
        atari.main([*SMALL, "--env-options", "level=2", *where])
    assert "does not take the options {'level': '2'} (KeyError: '2')" in capsys.readouterr().err
    for given in ((), ("--env-options", "level=1")):
        with pytest.raises(IndexError, match="list index"):
            atari.main([*SMALL, *given, *where])


@pytest.mark.parametrize("form", ["entry_point", "vector_entry_point"])
def test_a_value_error_of_the_constructor_is_one_line_that_says_where(
    form, register_game, tmp_path, capsys
):
    class Odd(Own):
        def __init__(self, num_envs=1):
            _, _ = 1, 2, 3

    register_game(GAME, **{form: Odd})
    with pytest.raises(SystemExit, match="2"):
        atari.main([*SMALL, "--savedir", str(tmp_path / "runs")])
    said = capsys.readouterr().err
    line = Odd.__init__.__code__.co_firstlineno + 1
    assert said.endswith(f"(expected 2) (test_own_environments.py, line {line})\n")
    assert said.count("\n") == 1


class Needy(Own):
    def __init__(self, size: int):
        self.size = size


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (Sized, ("sise=2",), "it has: level (text), size, nothing; did you mean size?"),
        (Sized, ("size=2", "num_envs=3"), "it has: level (text), size, nothing"),
        (Needy, (), "missing 1 required positional argument: 'size'"),
        (Needy, ("sise=2",), "it has: size (a whole number); did you mean size?"),
    ],
)
def test_options_that_the_constructor_does_not_take_are_one_line(
    kind, options, says, register_game, tmp_path, capsys
):
    register_game(GAME, entry_point=kind)
    given = ("--env-options", *options) if options else ()
    with pytest.raises(SystemExit, match="2"):
        atari.main([*SMALL, *given, "--savedir", str(tmp_path / "runs")])
    said = capsys.readouterr().err
    wrong = "does not take the options {'si" if options else "needs options ("
    assert said.startswith(f"error: {GAME} {wrong}") and said.count("\n") == 1
    assert says in said


@pytest.mark.parametrize("text", ["2", "1e5", "inf", "true", "none", "4x4"])
def test_an_option_declared_as_text_gets_what_was_typed(text, register_game, tmp_path):
    levels = []

    class Leveled(Own):
        def __init__(self, level: str = "1", symbols: "str | None" = None, plain=0):
            levels.append((level, symbols, plain))

    register_game(GAME, entry_point=Leveled)
    given = ("--env-options", f"level={text}", "symbols=7", "plain=3", "--total-steps", "8")
    where = ("--savedir", str(tmp_path), "--xpid", "a")
    assert atari.main([*SMALL, *given, *where]) == 0
    assert evaluate.main([str(tmp_path / "a"), "--episodes", "1", "--repeats", "1"]) == 0
    assert set(levels) == {(text, "7", 3)}


def test_the_command_that_an_export_prints_evaluates_a_game_in_a_module(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "my_recall.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Recall-v0', vector_entry_point='fastweights.envs.catch:Catch')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    game = ("--env", "my_recall:Recall-v0")
    try:
        assert atari.main([*SMALL, *game, "--total-steps", "8", "--xpid", "a"]) == 0
        assert export.main(["runs/a", "--format", "safetensors", *game]) == 0
        hint = capsys.readouterr().out.splitlines()[-1]
        assert hint.split()[-4:] == ["evaluate", "agent", *game]
        few = ("--episodes", "1", "--repeats", "1", "--num-threads", "1", "--no-clip")
        assert evaluate.main([*shlex.split(hint)[-3:], *few]) == 0
    finally:
        gymnasium.registry.pop("Recall-v0", None)


class Mended(Own):
    """Fails at its step `bad`, unless that is None."""

    bad: int | None = None

    def step(self, action):
        if self.time + 1 == self.bad:
            raise ValueError("a bug of the game")
        return super().step(action)


@pytest.mark.parametrize("schedule", ["lockstep", "asynchronous"])
def test_a_game_that_fails_before_anything_is_learned_leaves_the_name_free(
    schedule, register_game, tmp_path, monkeypatch
):
    register_game(GAME, entry_point=Mended)
    monkeypatch.setattr(Mended, "bad", 3)
    run = (*SMALL, "--savedir", str(tmp_path), "--xpid", "a", "--schedule", schedule)
    with pytest.raises(ValueError, match="a bug of the game"):
        atari.main([*run])
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(Mended, "bad", None)
    assert atari.main([*run]) == 0


@pytest.mark.parametrize("options", [(), ("--disable-checkpoint",)])
def test_a_game_that_fails_later_leaves_what_was_learned(
    options, register_game, tmp_path, monkeypatch
):
    register_game(GAME, entry_point=Mended)
    monkeypatch.setattr(Mended, "bad", 11)
    with pytest.raises(ValueError, match="a bug of the game"):
        atari.main([*SMALL, "--savedir", str(tmp_path), "--xpid", "a", *options])
    assert read_logs(tmp_path / "a")["step"] == [8, 16]
    monkeypatch.setattr(Mended, "bad", None)
    if not options:
        assert atari.main(["--resume", str(tmp_path / "a")]) == 0
