"""Test games during training: when they run, what they store, no effect on learning."""

import csv
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from forks import Program
from torch import nn

from fastweights.agents.network import Network
from fastweights.envs.catch import Catch
from fastweights.evaluation import training_tests
from fastweights.evaluation.evaluation_file import evaluations_in
from fastweights.evaluation.playing import play
from fastweights.evaluation.training_tests import PeriodicTest, games_of, own_tests
from fastweights.host.stopping import Interrupted
from fastweights.launch import atari, evaluate
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import read_meta
from fastweights.training.options import RunOptions
from fastweights.training.presets import preset

FAST = ["--num-threads", "1", "--num-envs", "4", "--batch-size", "4", "--unroll-length", "4"]
CATCH = ["--env", "Catch", "--core-width", "16", *FAST, "--total-steps", "160"]
WALL_CLOCK = ("_time", "agent_steps_per_second", "cpu_seconds")


def train(folder, xpid, *arguments) -> None:
    where = ["--savedir", str(folder), "--xpid", xpid]
    assert atari.main([*CATCH, *where, *arguments]) == 0


def test_training_learns_the_same_bits_with_tests_as_without(tmp_path, capsys):
    train(tmp_path, "without")
    train(tmp_path, "with", "--evaluate-every", "50", "--evaluate-episodes", "3")
    logs = [read_logs(tmp_path / name / "logs.csv") for name in ("without", "with")]
    for column in set(logs[0]) - set(WALL_CLOCK):
        if column.startswith("seconds_"):
            continue
        assert logs[0][column] == logs[1][column], column
    weights = [
        torch.load(tmp_path / name / "model.tar", weights_only=True)["model_state_dict"]
        for name in ("without", "with")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    # Updates end at 16, 32, ...; the last test is part of the final evaluation.
    kept = evaluations_in(tmp_path / "with").values()
    assert [one.agent_steps for one in kept] == [0, 64, 112, 160]
    assert {len(one.episodes) for one in kept} == {3}
    assert [[game.seed for game in one.episodes] for one in kept] == [
        [1_000_000, 1_000_001, 1_000_002]
    ] * 4
    rows = list(csv.DictReader((tmp_path / "with" / "evaluations.csv").open()))
    assert [int(row["step"]) for row in rows] == [0, 64, 112, 160]
    assert "test at 112 agent steps: " in capsys.readouterr().out
    assert not (tmp_path / "without" / "evaluations.csv").exists()
    assert_the_log_has_the_time(tmp_path / "with", [64, 112])


def test_games_are_played_without_dropout_and_the_modes_come_back():
    options = RunOptions(env="Catch", core="feedforward", evaluate_episodes=8)
    torch.manual_seed(1)
    network = Network(options.network((50,), 3))
    network.head_norm = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    modes = [module.training for module in network.modules()]

    def games() -> list[float]:
        played = play(network, options, 0, games_of(options), "sampled")
        return [game.episode_return for game in played.episodes]

    assert games() == games()
    assert [module.training for module in network.modules()] == modes


def assert_the_log_has_the_time(run, tested) -> None:
    """A row's seconds start at the row before it, and a test is played after a row is written."""
    logs = read_logs(run / "logs.csv")
    rows = zip(logs["step"], logs["seconds_test"], logs["agent_steps_per_second"], strict=True)
    seconds = {step: (testing, 16 / rate) for step, testing, rate in rows}
    after = [seconds.pop(step + 16) for step in tested]
    assert all(testing < whole for testing, whole in after)
    assert sum(testing for testing, _ in after) > sum(testing for testing, _ in seconds.values())


def test_later_games_under_other_rules_are_not_the_trainings_own(tmp_path, capsys):
    tested = ("--evaluate-every", "50", "--evaluate-episodes", "3")
    train(tmp_path, "run", *tested)
    run, words = tmp_path / "run", ("--episodes", "3", "--repeats", "1", "--no-clip")
    options = RunOptions.from_dict(read_meta(run)["args"])
    own = own_tests(run, options)
    assert [one.agent_steps for one in own.values()] == [0, 64, 112, 160]
    assert list(own) == list(evaluations_in(run))
    sampled = (*words, "--action-mode", "sampled")
    for other in (words, (*sampled, "--max-frames", "50"), (*sampled, "--seed", "7")):
        assert evaluate.main([str(run), *other]) == 0
    assert len(evaluations_in(run)) == 7 and own_tests(run, options) == own
    next(iter(own)).write_text("{}")
    warnings: list[str] = []
    assert len(own_tests(run, options, warnings.append)) == 3 and len(warnings) == 1


def test_games_in_a_longer_corridor_than_the_trainings_are_not_its_own(tmp_path, capsys):
    maze = ["--env", "TMaze", "--env-options", "corridor=3", "--core", "feedforward", *FAST]
    where = ["--savedir", str(tmp_path), "--xpid", "run"]
    assert atari.main([*maze, "--total-steps", "16", "--evaluate-episodes", "2", *where]) == 0
    run = tmp_path / "run"
    options = RunOptions.from_dict(read_meta(run)["args"])
    few = ["--episodes", "2", "--repeats", "1", "--protocol", "trained", "--action-mode", "sampled"]
    few += ["--no-clip", "--num-threads", "1"]
    for corridor in (3, 8):
        changed = ["--env-options", f"corridor={corridor}"]
        assert evaluate.main([str(run), *few, *changed]) == 0
    of_training, longer = (
        next(one for one in evaluations_in(run).values() if one.rules == {"corridor": corridor})
        for corridor in (3, 8)
    )
    assert (of_training.changed_options, longer.changed_options) == ({}, {"corridor": 8})
    assert "full-game_corridor-8_cap108000_sampled_1x2" in longer.file_name()
    every = list(evaluations_in(run).values())
    assert list(own_tests(run, options).values()) == [one for one in every if one != longer]
    # The shortest game that is won has a step for each place of the corridor, and a turn.
    assert all(game.agent_steps >= 8 for game in longer.episodes)
    assert "full-game, corridor 8" in " ".join(capsys.readouterr().out.split())
    for wrong, says in (("corridr=8", "corridor"), ("corridor=x", "a whole number")):
        with pytest.raises(SystemExit, match="2"):
            evaluate.main([str(run), *few, "--env-options", wrong])
        assert says in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_an_asynchronous_run_is_tested_too(tmp_path):
    asynchronous = ["--schedule", "asynchronous", "--env-groups", "2"]
    every = ["--evaluate-every", "50", "--evaluate-episodes", "3"]
    train(tmp_path, "run", *asynchronous, *every)
    kept = evaluations_in(tmp_path / "run").values()
    assert [one.agent_steps for one in kept] == [0, 64, 112, 160]
    assert {len(one.episodes) for one in kept} == {3}
    assert_the_log_has_the_time(tmp_path / "run", [64, 112])


class EndlessCatch(Catch):
    """A game that never ends and pays one point a step."""

    def step(self, actions):
        observation, reward, over, *rest = super().step(actions)
        return observation, np.ones_like(reward), np.zeros_like(over), *rest


def test_games_that_never_end_are_cut_counted_and_said(
    register_game, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    register_game("Endless-v0", vector_entry_point=EndlessCatch)
    endless = ["--env", "Endless-v0", "--evaluate-every", "80", "--evaluate-episodes", "3"]
    train(tmp_path, "run", *endless, "--evaluate-max-frames", "30")
    said = capsys.readouterr().out
    for evaluation in evaluations_in(tmp_path / "run").values():
        assert evaluation.max_frames == 30 and evaluation.summary()["cut_episodes"] == 3
        assert {(game.episode_return, game.agent_steps) for game in evaluation.episodes} == {
            (30.0, 30)
        }
    cut = "3 of 3 games reached the limit of 30 frames"
    assert f"test at 80 agent steps: 30.0 ± 0.0 over 3 full games ({cut})" in said
    (row,) = (line for line in said.splitlines() if "│ reached the limit of 30 frames" in line)
    assert row.count("3 of 3 games") == 2, (
        "games must be cut in the tests before and after training"
    )


@pytest.fixture
def begin(tmp_path):
    """Return a function that starts, or resumes, the test games of one run in `tmp_path`."""
    options = replace(preset("maze", "lstm"), evaluate_every=100, evaluate_episodes=2)
    network = Network(options.network((4,), 3))

    def begin(step: int) -> tuple[PeriodicTest, list[str]]:
        said: list[str] = []
        test = PeriodicTest(network, options, step, tmp_path, torch.device("cpu"), said.append)
        return test, said

    return begin


@pytest.fixture
def periodic(begin, tmp_path):
    return *begin(250), tmp_path


def test_it_plays_once_a_period_after_resuming(periodic):
    test, said, _ = periodic
    for step in (250, 299, 301, 350, 399, 640, 650):
        test(step, lambda: None)
    assert [line.split()[2] for line in said] == ["301", "640"]


def test_a_resumed_run_plays_missed_tests_and_none_twice(begin):
    test, said = begin(0)
    test(210, lambda: None)
    with pytest.raises(Interrupted):
        test(310, interrupt)
    test, said = begin(310)
    for step in (311, 320):
        test(step, lambda: None)
    assert [line.split()[2] for line in said] == ["311"]
    test, said = begin(320)
    test(399, lambda: None)
    assert not said
    test, said = begin(250)  # resumes an older checkpoint: tests after it have been played already
    test(260, lambda: None)
    assert not said


def test_a_run_stopped_in_its_games_plays_them_first_when_it_is_resumed(tmp_path, monkeypatch):
    """In a run's last period no update is left after which the games could be played."""
    played = training_tests.play_games_of

    def stopping(network, options, step, *rest):
        if step:
            signal.raise_signal(signal.SIGINT)
        return played(network, options, step, *rest)

    tested = ["--total-steps", "160", "--evaluate-every", "144", "--evaluate-episodes", "2"]
    where = ["--savedir", str(tmp_path), "--xpid", "run"]
    with monkeypatch.context() as patch:
        patch.setattr(training_tests, "play_games_of", stopping)
        assert atari.main([*CATCH, *tested, *where]) == 130
    assert [one.agent_steps for one in evaluations_in(tmp_path / "run").values()] == [0]
    assert atari.main(["--resume", str(tmp_path / "run")]) == 0
    assert [one.agent_steps for one in evaluations_in(tmp_path / "run").values()] == [0, 144, 160]


def interrupt() -> None:
    raise Interrupted(signal.SIGINT)


def test_games_that_cannot_be_kept_do_not_end_training(periodic):
    test, said, folder = periodic
    (folder / "evaluations").write_text("in the way")
    test(300, lambda: None)
    assert said[0].startswith("warning: the test games at 300 agent steps were not saved: ")
    assert said[1].startswith("test at 300 agent steps: ")


def test_a_stop_ends_the_games_and_they_are_played_another_time(periodic):
    test, said, folder = periodic
    with pytest.raises(Interrupted):
        test(300, interrupt)
    assert not said and not list(folder.iterdir())
    test(300, lambda: None)
    assert len(said) == 1


KILLED_IN_ITS_LAST_GAMES = """
import os, sys
from fastweights.experiments.agents import run
from fastweights.launch import atari
run.show_trained = lambda *given: os._exit(9)
atari.main(sys.argv[1:])
"""


def test_a_run_killed_in_its_last_test_games_plays_them_again(tmp_path, capsys):
    words = [*CATCH, "--auto-resume", "--evaluate-episodes", "2"]
    words += ["--savedir", str(tmp_path), "--xpid", "job"]
    assert Program(KILLED_IN_ITS_LAST_GAMES, *words).end().returncode == 9
    for games_missing in (True, False):
        assert atari.main(words) == 0
        said = capsys.readouterr().out
        assert "has finished its 160 agent steps" in said
        assert ("after training" in said) == games_missing
    assert [one.agent_steps for one in evaluations_in(tmp_path / "job").values()] == [0, 160]
