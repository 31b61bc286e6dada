"""Exported agents play as their checkpoints, describe themselves, and are refused if damaged."""

import errno
import io
import json
import shutil
from dataclasses import replace

import pytest
import torch
from forks import Program
from rich.console import Console

from fastweights.evaluation import GamePlan
from fastweights.evaluation.agent_games import play_agent
from fastweights.evaluation.evaluation_file import Evaluation, evaluations_in
from fastweights.evaluation.model_cards import model_card
from fastweights.evaluation.printed_tables import comparison_tables
from fastweights.launch import atari, evaluate, export
from fastweights.records.checkpoints import CheckpointError
from fastweights.records.exports import AGENT_EXPORT, LANGUAGE_MODEL_EXPORT
from fastweights.training.options import RunOptions
from fastweights.training.saved_agent import open_agent
from tests.evaluation.test_evaluation_file import PLAIN, evaluation
from tests.launch.test_bad_input import error_of

FEW = ["--episodes", "3", "--repeats", "2", "--no-clip", "--action-mode", "sampled"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    fast = ["--num-threads", "1", "--num-envs", "4", "--batch-size", "4", "--core-width", "16"]
    where = ["--savedir", str(folder), "--xpid", "pole", "--total-steps", "400"]
    assert atari.main(["--env", "CartPole-v1", *fast, *where]) == 0
    assert evaluate.main([str(folder / "pole"), *FEW]) == 0
    return folder / "pole"


@pytest.fixture
def exported(trained, tmp_path):
    assert evaluate.main([str(trained), "--export", str(tmp_path / "agent")]) == 0
    return tmp_path / "agent"


def test_an_exported_agent_plays_the_same_games(trained, exported):
    assert evaluate.main([str(exported), *FEW]) == 0
    assert list(evaluations_in(exported).values()) == list(evaluations_in(trained).values())
    ours, theirs = open_agent(trained), open_agent(exported)
    assert (theirs.step, theirs.options) == (ours.step, ours.options)
    for name, weight in ours.network.state_dict().items():
        assert torch.equal(weight, theirs.network.state_dict()[name]), name


TOO_SMALL = """
import resource, sys
from fastweights.launch import export, report
resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))
{"export": export, "report": report}[sys.argv[1]].main(sys.argv[2:])
"""


@pytest.mark.parametrize("words", [("export", "--format", "safetensors"), ("report",)])
def test_what_does_not_fit_on_the_disk_is_one_line_and_leaves_no_folder(trained, tmp_path, words):
    done = Program(TOO_SMALL, *words, trained, "--out", tmp_path / "new" / "folder").end()
    assert done.returncode == 2 and done.stdout == ""
    *notes, line = done.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith("File too large")
    assert not any("Traceback" in note for note in notes) and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_one_line(trained, tmp_path, capsys):
    out = trained / "logs.csv" / "agent"
    said = error_of(export.main, [trained, "--format", "safetensors", "--out", out], capsys)
    assert f"the export's folder cannot be created: {out.parent}" in said


def test_the_card_says_what_it_is_and_what_it_scores(trained, exported):
    card = (exported / "README.md").read_text()
    (played,) = evaluations_in(trained).values()
    summary, digits = played.summary(), 1 if played.summary()["score_mean"] >= 10 else 2
    score = f"{summary['score_mean']:,.{digits}f} ± {summary['score_std']:,.{digits}f}"
    row = f"2 x 3 | {played.seed} | {score} a full game | 2 repeats |"
    commit = (open_agent(trained).payload["git"] or {}).get("commit")  # none outside a checkout
    code = f" The code was at revision {commit}. All options" if commit else " seed 1. All options"
    for expected in ("# rdn on CartPole-v1", "agent steps of training, seed 1.", code, row):
        assert expected in card


@pytest.mark.parametrize(
    ("objective", "said", "tag"),
    [("vtrace", "IMPALA / V-trace", "impala"), ("ppo", "PPO", "ppo"), ("appo", "APPO", "appo")],
)
def test_the_card_names_what_taught_the_agent(objective, said, tag):
    flags = RunOptions().to_dict() | {"objective": objective, "core": "rdn", "env": "Pong"}
    card = model_card({"flags": flags, "model_state_dict": {}, "step": 5, "git": "unknown"})
    assert f"trained by {said} on Pong:" in card and f"\n- {tag}\n" in card


def test_the_card_s_command_names_the_modules_of_the_game_and_the_memory():
    own = {"env": "recall:Recall-v0", "core": "mine:decay", "env_options": ("delay=8",)}
    card = model_card(
        {"flags": RunOptions().to_dict() | own, "model_state_dict": {}, "step": 5},
        [evaluation(*PLAIN, changed_options={"delay": 9})],
    )
    command = "fastweights evaluate PATH_TO_THIS_FOLDER --env recall:Recall-v0 --core mine:decay"
    assert " on recall:Recall-v0 delay=8: " in card and f"\n    {command}\n" in card
    assert "| full-game, delay 9 |" in card


@pytest.mark.parametrize(
    ("games", "score", "over"),
    [(PLAIN[:2], "3.00 ± 1.00", "episodes"), (PLAIN[:1], "4.00", "-")],  # returns of 4 and 2
)
def test_the_spread_of_one_repeat_is_its_episodes(games, score, over, trained, tmp_path):
    once = evaluation(*games, repeats=1)
    payload = open_agent(trained).payload
    AGENT_EXPORT.write(payload, tmp_path, model_card(payload, [once]))
    assert f"| {score} a full game | {over} |" in (tmp_path / "README.md").read_text()
    console = Console(width=200, file=io.StringIO())
    console.print(comparison_tables({"this agent": once})[0])
    (row,) = (line for line in console.file.getvalue().splitlines() if "this agent" in line)
    assert [cell.strip() for cell in row.split("│")][2:4] == [score, over]


def of_content(change):
    """Return a function that damages the content of a JSON file."""

    def spoil(path):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return spoil


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:1000]), "header"),
        ("model.safetensors", lambda path: path.write_bytes(b"\xff" * 64), "header too large"),
        ("model.safetensors", lambda path: path.write_bytes(b""), "header too small"),
        ("config.json", lambda path: path.write_text("{"), "Expecting property name"),
        ("config.json", lambda path: path.write_text("[]"), "not an object"),
        ("config.json", lambda path: path.unlink(), "config.json: No such file"),
        ("config.json", of_content(lambda c: c.update(version=9)), "another format or version"),
        ("config.json", of_content(lambda c: c["flags"].update(core="vgg")), "core 'vgg'"),
        ("config.json", of_content(lambda c: c["network"].update(num_actions=5)), "policy.weight"),
        ("config.json", of_content(lambda c: c.update(flags=None)), "does not fit this version"),
        ("config.json", of_content(lambda c: c.update(step="many")), "its step is not a count"),
    ],
)
def test_a_damaged_export_is_refused(name, spoil, says, exported):
    spoil(exported / name)
    with pytest.raises(CheckpointError, match=says):
        open_agent(exported)


def test_a_model_of_another_program_is_not_overwritten(trained, tmp_path):
    theirs = {"model.safetensors": b"weights", "config.json": b'{"architectures": ["Bert"]}'}
    for name, content in theirs.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="contains other files: give a new folder"):
        AGENT_EXPORT.check_folder(tmp_path)
    AGENT_EXPORT.write(open_agent(trained).payload, tmp_path / "own", "")
    AGENT_EXPORT.check_folder(tmp_path / "own")
    with pytest.raises(ValueError, match="contains other files"):
        LANGUAGE_MODEL_EXPORT.check_folder(tmp_path / "own")


def test_games_of_other_weights_are_not_taken_for_the_exported_agent_s(trained, exported, capsys):
    assert evaluate.main([str(exported), *FEW]) == 0
    before = (exported / "model.safetensors").read_bytes()
    assert export.main([str(trained), "--format", "safetensors", "--out", str(exported)]) == 0
    other = shutil.copytree(trained, exported.parent / "other")
    payload = torch.load(other / "model.tar", weights_only=True)
    next(iter(payload["model_state_dict"].values())).add_(1)
    torch.save(payload, other / "model.tar")
    again = ["--format", "safetensors", "--out", str(exported)]
    capsys.readouterr()
    said = error_of(export.main, [str(other / "model.tar"), *again], capsys)
    assert f"{exported / 'evaluations'} holds test games of other weights: move it" in said
    assert (exported / "model.safetensors").read_bytes() == before


def test_the_card_says_how_long_games_lasted_and_what_was_cut(trained):
    (played,) = evaluations_in(trained).values()
    cut = tuple(game._replace(cut=True) for game in played.episodes[:2]) + played.episodes[2:]
    payload = open_agent(trained).payload
    card = model_card(payload, [replace(played, max_frames=500, episodes=cut)])
    assert "| sampled | 500 frames | 2 x 3 |" in card
    assert "- full-game, sampled: 2 of 6 games reached the limit of 500 frames; their" in card
    assert "\n\n## Use" in card and "\n\n\n" not in card
    assert "| sampled | any | 2 x 3 |" in model_card(payload, [replace(played, max_frames=None)])


def test_an_export_that_breaks_off_leaves_the_one_before(trained, exported, monkeypatch):
    before = {path.name: path.read_bytes() for path in exported.iterdir() if path.is_file()}
    payload = open_agent(trained).payload | {"step": 7}

    def full(*given, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fastweights.records.exports.save", full)
    with pytest.raises(OSError, match="No space left"):
        AGENT_EXPORT.write(payload, exported, "another card")
    assert before == {path.name: path.read_bytes() for path in exported.iterdir() if path.is_file()}


def test_games_of_checkpoints_in_one_folder_stay_apart(trained, tmp_path, capsys):
    models = [tmp_path / "models" / name for name in ("a.tar", "b.tar")]
    models[0].parent.mkdir()
    for model in models:
        shutil.copy(trained / "model.tar", model)
    assert evaluate.main([*map(str, models), *FEW]) == 0
    said = capsys.readouterr().out
    for name in "ab":
        (kept,) = evaluations_in(tmp_path / "models" / name)
        assert f"episodes: {kept}\n" in said


def test_agents_of_equal_names_have_rows_of_their_own(trained, tmp_path):
    twin = open_agent(shutil.copytree(trained, tmp_path / trained.name))
    played: dict[str, dict[str, Evaluation]] = {}
    for agent in (open_agent(trained), twin):
        plan = GamePlan(episodes=2, repeats=1)
        play_agent(agent, plan, ["sampled"], torch.device("cpu"), played)
    (rows,) = played.values()
    which = f"{twin.step:,} steps (rdn, sampled)"
    assert list(rows) == [f"pole, {which}", f"{twin.run}, {which}"]
