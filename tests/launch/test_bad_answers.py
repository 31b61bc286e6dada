"""Environments that return values that are not finite: one error line, for all commands."""

import gymnasium
import numpy as np
import pytest
from small_runs import GROUPS, train

from fastweights import envs
from fastweights.envs.catch import Catch
from fastweights.launch import evaluate
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs

SCHEDULES = {"lockstep": ("--schedule", "lockstep"), "asynchronous": GROUPS}
BAD = {"nan": np.nan, "inf": np.inf, "beyond float32": 1e300}


class BadCatch(Catch):
    """From step `at` on, `what` of the last game is `value`; with `at=0` its first observation."""

    def __init__(self, num_envs=1, render_mode=None, at=30, what="reward", value="nan"):
        super().__init__(num_envs, render_mode)
        self.at, self.what, self.value, self.steps = at, what, BAD[value], 0

    def step(self, actions):
        self.steps += 1
        observation, reward, *rest = super().step(actions)
        if self.what == "reward" and self.steps >= self.at:
            reward = reward.astype(np.float64)
            reward[-1] = self.value
        return observation, reward, *rest

    def _observe(self):
        observation = super()._observe().astype(np.float64)
        if self.what == "observation" and self.steps >= self.at:
            observation[-1, 7] = self.value
        return observation


@pytest.fixture(autouse=True)
def _registered(register_game):
    register_game("Bad-v0", vector_entry_point=BadCatch)


def bad(**options: object) -> tuple[str, ...]:
    given = (f"{name}={value}" for name, value in options.items())
    return ("--env", "Bad-v0", "--env-options", *given)


def error_of(call, *arguments: object, capsys) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        call(*arguments)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    return said[0]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("what", ["reward", "observation"])
@pytest.mark.filterwarnings("error")
def test_a_line_says_what_is_wrong_where_and_what_to_do(what, value):
    environments = envs.make("Bad-v0", 3, seed=5, options={"at": 4, "what": what, "value": value})
    environments.reset()
    for _ in range(3):
        environments.step(np.zeros(3, np.int64))
    with pytest.raises(envs.BrokenEnvironment) as caught:
        environments.step(np.zeros(3, np.int64))
    at = " at index 7" * (what == "observation")
    shown = "nan" if value == "nan" else "inf"
    line = str(caught.value)
    assert line.startswith(f"Bad-v0, environment 2 (seed 7): the {what} of step 4 is {shown}{at}; ")
    assert f"gymnasium.wrappers.Transform{what.capitalize()}" in line


def test_a_first_observation_is_of_no_step():
    environments = envs.make("Bad-v0", 1, options={"at": 0, "what": "observation"})
    with pytest.raises(
        envs.BrokenEnvironment, match="the observation of the reset is nan at index 7"
    ):
        environments.reset()


class OddCatch(Catch):
    """A batch whose step returns something else in one place."""

    def __init__(self, num_envs=1, render_mode=None, place=0, what="column"):
        super().__init__(num_envs, render_mode)
        self.place, self.what = place, what

    def step(self, actions):
        result = list(super().step(actions))
        array = np.asarray(result[self.place])
        odd = {
            "column": array[:, None],
            "one": array[0],
            "complex": array.astype(complex),
            "float": array.astype(float),
            "list": array.tolist(),
        }
        result[self.place] = odd[self.what]
        return tuple(result)


@pytest.mark.parametrize(
    ("place", "what", "says"),
    [
        (0, "column", "an observation of shape (2, 1, 50) for 2 environments"),
        (0, "complex", "an observation of kind complex128"),
        (1, "column", "rewards of shape (2, 1) and kind float32: return 2 numbers"),
        (1, "one", "rewards of shape () and kind float32"),
        (1, "complex", "rewards of shape (2,) and kind complex128"),
        (2, "column", "terminated of shape (2, 1) and kind bool: return 2 truth values"),
        (2, "float", "terminated of shape (2,) and kind float64"),
        (3, "float", "truncated of shape (2,) and kind float64"),
    ],
)
def test_a_batch_of_another_form_is_one_line(place, what, says, register_game):
    register_game("Odd-v0", vector_entry_point=OddCatch)
    environments = envs.make("Odd-v0", 2, options={"place": place, "what": what})
    environments.reset()
    with pytest.raises(envs.BrokenEnvironment) as caught:
        environments.step(np.zeros(2, np.int64))
    line = str(caught.value)
    assert line.startswith("Odd-v0: step() returned ") and says in line and "\n" not in line


@pytest.mark.parametrize("place", [1, 2, 3])
def test_lists_in_a_batch_are_arrays(place, register_game):
    register_game("Odd-v0", vector_entry_point=OddCatch)
    lists = envs.make("Odd-v0", 2, options={"place": place, "what": "list"})
    arrays = envs.make("Catch", 2)
    lists.reset(), arrays.reset()
    for _ in range(12):
        found, expected = (each.step(np.zeros(2, np.int64)) for each in (lists, arrays))
        assert np.array_equal(found.reward, expected.reward)
        assert np.array_equal(found.is_first, expected.is_first)


@pytest.mark.parametrize("what", ["reward", "observation"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_training_keeps_what_it_learned_before(schedule, what, tmp_path, capsys):
    options = (*bad(at=32, what=what), *SCHEDULES[schedule], "--total-steps", 10_000)
    line = error_of(lambda: train(tmp_path, "run", *options), capsys=capsys)
    assert f"the {what} of step 32 is nan" in line and "Bad-v0" in line
    reached = read_logs(tmp_path / "run")["step"][-1]
    assert load_checkpoint(tmp_path / "run" / "model.tar")["step"] == reached > 0


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, capsys):
    options = (*bad(at=0, what="observation"), "--schedule", "lockstep")
    line = error_of(lambda: train(tmp_path, "run", *options), capsys=capsys)
    assert "the observation of the reset is nan" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("games", [0, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_that_learned_nothing_leaves_no_folder(schedule, games, tmp_path, capsys):
    options = (*bad(at=3), *SCHEDULES[schedule], "--evaluate-episodes", games)
    line = error_of(lambda: train(tmp_path, "run", *options), capsys=capsys)
    assert "the reward of step 3 is nan" in line
    assert not list(tmp_path.iterdir())


def test_test_games_report_it_too(tmp_path, capsys):
    """Test games fail before training, during training and when a trained agent is evaluated."""
    games = ("--evaluate-episodes", 2, "--total-steps", 100)
    line = error_of(lambda: train(tmp_path, "before", *bad(at=3), *games), capsys=capsys)
    assert "the reward of step 3 is nan" in line
    assert train(tmp_path, "run", *bad(at=1000), "--total-steps", 20) == 0
    gymnasium.registry["Bad-v0"].vector_entry_point = lambda **given: BadCatch(**given | {"at": 3})
    games = ("--episodes", "2", "--num-threads", "1")
    line = error_of(evaluate.main, [str(tmp_path / "run"), *games], capsys=capsys)
    assert "the reward of step 3 is nan" in line
