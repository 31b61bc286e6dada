"""Runs that Python starts, in a notebook for example, where a failed run's objects stay alive."""

import signal
from dataclasses import replace

import pytest
import small_runs
from small_runs import StoppingDisplay

from fastweights.agents.learner import Learner
from fastweights.experiments import close_agent, run_agent
from fastweights.host import UserError
from fastweights.launch import atari, list_ops
from fastweights.records import read_meta
from fastweights.tasks.train import Trainer
from fastweights.training import RunOptions, open_agent
from fastweights.training.ray import session

LISTS = (
    *("--preset", "small", "--train-size", "16", "--valid-size", "8", "--test-size", "8"),
    *("--batch-size", "8", "--epochs", "2", "--num-threads", "1", "--core-width", "16"),
    *("--depth", "1", "--core", "lstm"),
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_envs": 0}, r"--num-envs must lie in \[1, 2\^20\], not 0"),
        ({"seed": -1}, "--seed must lie in"),
        ({"core": "rnd"}, "did you mean rdn?"),
    ],
)
def test_options_are_checked_as_those_of_the_command(change, says, tmp_path):
    options = {"env": "Catch", "core": "feedforward", "num_threads": 1} | change
    with pytest.raises(UserError, match=says):
        run_agent(RunOptions(**options, savedir=tmp_path))
    assert not list(tmp_path.iterdir())


def failing(*given, **named):
    raise KeyError("of the user's code")


AGENT = (*small_runs.CATCH, *small_runs.SMALL, "--total-steps", "40")


@pytest.mark.parametrize(
    ("command", "arguments", "kind", "method"),
    [(atari, AGENT, Learner, "update"), (list_ops, LISTS, Trainer, "rows")],
)
def test_the_folder_of_a_failed_run_is_free(
    command, arguments, kind, method, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(kind, method, failing)
        with pytest.raises(KeyError) as failure:
            command.main([*arguments, "--savedir", str(tmp_path), "--xpid", "run"])
    assert failure.tb is not None  # the error refers to the run's objects
    again = ["--resume", str(tmp_path / "run")]
    if command is atari:  # nothing was learned, so there is no folder
        again = [*arguments, "--savedir", str(tmp_path), "--xpid", "run"]
    assert command.main(again) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "on Catch, seed 1, lockstep on cpu"),
        (("--env-options", "pictures=true"), "seed 1, lockstep on cpu, float32 convolutions"),
        (("--env", "Pong"), "on Pong (full-game), seed 1, lockstep on cpu, float32 convolutions"),
    ],
)
def test_a_run_says_only_what_applies_to_it(options, said, tmp_path, capsys):
    precision = ("--precision", "float32")  # not the machine's
    assert small_runs.train(tmp_path, "run", "--total-steps", 20, *precision, *options) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith(said)


@pytest.mark.parametrize("steps", [[], ["--total-steps", "100000"]], ids=["published", "shorter"])
@pytest.mark.parametrize(
    ("env", "preset"), [(["Pong", "--stem", "shallow"], "quick"), (["Catch"], "vectors")]
)
def test_a_long_run_names_presets_for_a_laptop(env, preset, steps, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
    small = [*small_runs.SMALL, "--core", "feedforward", "--device", "cpu"]
    where = ["--savedir", str(tmp_path), "--xpid", "run"]
    assert atari.main(["--env", *env, *small, *where, *steps]) == 130
    notes = [line for line in capsys.readouterr().err.splitlines() if "learns in minutes" in line]
    assert [f"--preset {preset} " in note for note in notes] == [True] * (not steps)


def test_test_games_after_a_ray_run_need_no_ray(tmp_path, monkeypatch, capsys):
    assert small_runs.train(tmp_path, "run", "--total-steps", 20) == 0
    saved = open_agent(tmp_path / "run")
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    trained = replace(saved.options, engine="ray", actor_gpus=1.0, evaluate_episodes=2)
    close_agent(replace(trained, ray_address="127.0.0.1:1"), saved)
    assert list((tmp_path / "run" / "evaluations").glob("*.json"))


class StoppedAtTheEnd(small_runs.ProgressDisplay):
    """A display that asks a run of 40 agent steps to stop while it shows the last update."""

    def update(self, step, row):
        super().update(step, row)
        if step == 40:
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_in_the_last_update_leaves_the_test_games_to_a_later_start(
    tmp_path, monkeypatch, capsys
):
    command = [*AGENT, "--evaluate-episodes", "2", "--savedir", str(tmp_path), "--xpid", "run"]
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppedAtTheEnd)
        assert atari.main(command) == 128 + signal.SIGTERM
    assert read_meta(tmp_path / "run")["successful"]
    games = tmp_path / "run" / "evaluations"
    assert not list(games.glob("step_000000000040_*"))
    assert "no test games played" in capsys.readouterr().out
    assert atari.main([*command, "--auto-resume"]) == 0
    assert list(games.glob("step_000000000040_*"))
