"""Evaluation files: episodes survive writing and reading, and means agree with hand results."""

import csv
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastweights.evaluation import evaluation_file
from fastweights.evaluation.evaluation_file import (
    Evaluation,
    PlayedGame,
    evaluations_in,
    write_overview,
)
from fastweights.evaluation.score_summary import remarks, spread
from fastweights.host import write_bytes
from fastweights.host.errors import UserError


def game(repeat, episode, lives, wraps=None, steps=10, cut=False) -> PlayedGame:
    wraps = wraps or (0,) * len(lives)
    seed = 100 + repeat * 2 + episode
    number, total = len(lives), float(sum(lives))
    return PlayedGame(repeat, episode, seed, total, lives, wraps, number, steps, 4 * steps, cut)


def evaluation(*games: PlayedGame, **changes) -> Evaluation:
    given = {
        "env": "UpNDown",
        "protocol": "full-game",
        "rules": {"sticky": 0.0},
        "score": "game",
        "max_frames": None,
        "action_mode": "argmax",
        "seed": 100,
        "repeats": 2,
        "agent_steps": 7,
        "core": "rdn",
        "score_modulus": 1_000_000,
    }
    return Evaluation(**(given | changes), episodes=games)


PLAIN = (game(0, 0, (1.0, 3.0)), game(0, 1, (2.0,)), game(1, 0, (4.0, 4.0)), game(1, 1, (0.0,)))
WRAPPED = (*PLAIN[:3], game(1, 1, (10.0, -999_990.0), (0, 1)))


def test_episodes_survive_a_file(tmp_path):
    kept = evaluation(*WRAPPED)
    path = tmp_path / "evaluations" / kept.file_name()
    kept.save(path, run="somewhere")
    assert path.name == "step_000000000007_full-game_argmax_2x2_seed100.json"
    assert Evaluation.load(path) == kept
    assert evaluations_in(tmp_path) == {path: kept}
    assert json.loads(path.read_text())["run"] == "somewhere"
    rows = list(csv.DictReader(path.with_suffix(".csv").open()))
    assert [float(row["episode_return"]) for row in rows] == [4, 2, 8, -999_980]
    assert rows[3]["life_returns"] == "10 -999990" and rows[3]["seed"] == "103"


@pytest.mark.parametrize("content", ["{", "[]", '{"episodes": [{"episode_return": 1.0}]}'])
def test_a_file_of_another_kind_does_not_spoil_the_others(tmp_path, capsys, content):
    kept = evaluation(*PLAIN)
    path = tmp_path / "evaluations" / kept.file_name()
    kept.save(path)
    foreign = path.with_name("step_000000000001_older.json")
    foreign.write_text(content)
    assert evaluations_in(tmp_path) == {path: kept}
    write_overview(tmp_path)
    assert len(list(csv.DictReader((tmp_path / "evaluations.csv").open()))) == 1
    warning = capsys.readouterr().err.splitlines()[0]
    assert warning.startswith("warning: skipped: ") and str(foreign) in warning


def test_an_evaluation_stored_while_the_overview_is_written_has_a_row(tmp_path, monkeypatch):
    """As by another process, which writes its own overview before this one does."""
    first, second = evaluation(*PLAIN), evaluation(*PLAIN, action_mode="sampled")
    first.save(tmp_path / "evaluations" / first.file_name())
    calls = itertools.count()

    def late(path: Path, content: bytes) -> None:
        if next(calls) == 0:
            second.save(tmp_path / "evaluations" / second.file_name())
            write_overview(tmp_path)
        write_bytes(path, content)

    monkeypatch.setattr(evaluation_file, "write_bytes", late)
    write_overview(tmp_path)
    rows = csv.DictReader((tmp_path / "evaluations.csv").open())
    assert {row["action_mode"] for row in rows} == {first.action_mode, "sampled"}


def test_means_and_spreads_by_hand():
    summary = evaluation(*PLAIN).summary()
    assert summary["score_mean"] == 3.5  # scores 4, 2 and 8, 0; the repeats' means are 3 and 4
    assert summary["score_std"] == 0.5
    assert summary["full_game_std"] == pytest.approx(8.75**0.5)
    assert summary["life_mean"] == pytest.approx(14 / 6)
    assert (summary["episodes"], summary["lives"]) == (4, 6)


def test_a_score_of_lives_is_the_mean_of_the_repeats_lives():
    summary = evaluation(*PLAIN, score="life").summary()
    assert summary["score_mean"] == pytest.approx((6 / 3 + 8 / 3) / 2)
    assert summary["score_std"] == pytest.approx((8 / 3 - 6 / 3) / 2)


def test_the_spread_beside_a_score_is_over_repeats_or_else_over_games():
    assert spread(evaluation(*PLAIN), "full_game") == (3.5, 0.5, "2 repeats")
    lives = evaluation(PLAIN[0], game(1, 0, (4.0,)), score="life")
    assert spread(lives, "score") == (3.0, 1.0, "2 repeats")  # the repeats' lives: 1, 3 and 4
    once = evaluation(*(one._replace(repeat=0) for one in PLAIN), repeats=1)
    assert spread(once, "score") == (3.5, pytest.approx(8.75**0.5), "episodes")
    single = evaluation(PLAIN[0], repeats=1)
    assert spread(single, "full_game") == (4.0, None, "-")
    assert spread(single, "life") == (2.0, 1.0, "episodes")


def test_a_wrapped_score_is_reported_with_and_without_what_the_counter_lost():
    summary = evaluation(*WRAPPED).summary()
    assert summary["wrapped_episodes"] == 1
    assert summary["score_mean"] == (3 + (8 - 999_980) / 2) / 2
    assert summary["score_mean_unwrapped"] == (3 + (8 + 20) / 2) / 2
    assert summary["full_game_mean_without_wrapped"] == pytest.approx(14 / 3)
    assert summary["life_mean_without_wrapped"] == pytest.approx(24 / 6)
    everything_wrapped = evaluation(WRAPPED[3]._replace(repeat=0), repeats=1).summary()
    assert everything_wrapped["full_game_mean_without_wrapped"] is None
    assert everything_wrapped["life_mean_without_wrapped"] == 10
    lives = evaluation(*WRAPPED, score="life")
    assert lives.scores(unwrapped=True)[1] == [4.0, 4.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("score", "mean"),
    [("game", "full games without those 4.7"), ("life", "lives without those 4.0")],
)
def test_the_command_leaves_out_what_the_protocol_calls_a_score(score, mean):
    (line,) = remarks(evaluation(*WRAPPED, score=score))
    assert "restarted from 0 in 1 of 4 games" in line and line.endswith(mean)


@pytest.mark.parametrize(
    "changes",
    [
        {"episode_return": math.inf},
        {"episode_return": 1e308, "life_returns": [1e308, 0.0]},
        {"episode_return": 0.0, "life_returns": [1e308, -1e308]},
        {"life_returns": [1.0, 2.999]},
    ],
)
def test_returns_are_finite_and_add_up(tmp_path, changes):
    """Otherwise a mean could not be computed after all games were played."""
    path = tmp_path / "evaluations" / "step_000000000001.json"
    evaluation(*PLAIN).save(path)
    content = json.loads(path.read_text())
    content["episodes"][0] |= changes
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"every return must|must add up"):
        Evaluation.load(path)
    write_overview(tmp_path)


def test_games_of_endless_reward_are_one_line_and_no_file(tmp_path):
    path = tmp_path / "evaluations" / "step_000000000001.json"
    with pytest.raises(UserError, match="these games cannot be saved: every return must lie"):
        evaluation(game(0, 0, (math.inf,)), repeats=1).save(path)
    assert not path.parent.exists()


def test_a_sum_of_single_precision_rewards_adds_up():
    rewards = [0.1] * 12
    total = float(sum(map(np.float32, rewards), np.float32(0)))
    wraps = (0,) * len(rewards)
    one = game(0, 0, tuple(rewards), wraps)._replace(episode_return=total)
    assert total != sum(rewards)
    evaluation(one, repeats=1).check()


def test_a_cap_is_in_the_name():
    assert "_cap18000_" in evaluation(*PLAIN, max_frames=18_000).file_name()


def test_games_under_changed_rules_have_a_file_of_their_own():
    rules = {"sticky": 0.25, "life_signal": False, "noop_max": 30, "frame_stack": 1}
    name = evaluation(*PLAIN, rules=rules, max_frames=400).file_name()
    parts = "full-game_sticky-0.25_life-signal-false_cap400_argmax_2x2_seed100"
    assert name == f"step_000000000007_{parts}.json"
    machado = evaluation(*PLAIN, rules=rules, protocol="machado").changed_rules()
    assert machado == {"noop_max": 30}
    assert evaluation(*PLAIN, rules=rules, protocol="mine").changed_rules() == {}
    texts = ("../Maps/8 x 8", "../maps/8 x 8", "..-maps-8-x-8")
    changed = [evaluation(*PLAIN, changed_options={"map_name": text}) for text in texts]
    names = [one.file_name() for one in changed]
    assert all("_full-game_map-name-..-maps-8-x-8" in name for name in names)
    assert "-8-x-8_argmax_" in names[2] and len(set(names)) == 3
    assert set("/ ").isdisjoint("".join(names))


def test_the_overview_has_a_row_an_evaluation_in_order(tmp_path):
    for steps in (200, 7, 30):
        one = replace(evaluation(*PLAIN), agent_steps=steps)
        one.save(tmp_path / "evaluations" / one.file_name())
    write_overview(tmp_path)
    rows = list(csv.DictReader((tmp_path / "evaluations.csv").open()))
    assert [row["step"] for row in rows] == ["7", "30", "200"]
    assert {row["score_mean"] for row in rows} == {"3.5"}


def test_the_overview_names_changed_rules(tmp_path):
    for rules in ({}, {"sticky": 0.25, "life_signal": False}):
        one = evaluation(*PLAIN, rules=rules)
        one.save(tmp_path / "evaluations" / one.file_name())
    write_overview(tmp_path)
    rows = csv.DictReader((tmp_path / "evaluations.csv").open())
    assert {row["changed_rules"] for row in rows} == {"", "sticky=0.25 life_signal=False"}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other", "version": 1}', "\x00"])
def test_a_damaged_or_foreign_file_is_one_line(content, tmp_path):
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(UserError, match=r"e\.json.*evaluate again"):
        Evaluation.load(tmp_path / "e.json")


@pytest.mark.parametrize(
    ("games", "changes", "says"),
    [
        (WRAPPED, {"score_modulus": None}, "overflows of the counter need a score"),
        ((game(0, 0, (1.0,), (-1,)),), {"repeats": 1}, "overflows of the counter need a score"),
        ((game(0, 0, (1.0,), cut=True),), {"repeats": 1}, "no episode can be cut without a limit"),
        ((PLAIN[0]._replace(lives=0),), {"repeats": 1}, "as many lives as returns of lives"),
    ],
)
def test_a_file_that_contradicts_itself_is_one_line(games, changes, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        evaluation(*games, **changes).check()
