"""A game of POPGym with the ordinary commands: training, resuming, test games."""

import json

import pytest
from PIL import Image

from fastweights.launch import atari, evaluate, watch
from fastweights.training.saved_agent import open_agent

GAME = "popgym:popgym-AutoencodeEasy-v0"
SMALL = ["--env", GAME, "--core", "lstm", "--core-width", "8", "--num-threads", "1"]
SMALL += ["--num-envs", "2", "--batch-size", "2", "--unroll-length", "4", "--total-steps", "80"]


@pytest.mark.parametrize(("given", "fed"), [([], True), (["--no-feed-last-action"], False)])
def test_a_game_is_trained_resumed_and_tested(given, fed, tmp_path, capsys):
    command = [*SMALL, *given, "--savedir", str(tmp_path), "--xpid", "a", "--auto-resume"]
    assert atari.main(command) == 0
    run = tmp_path / "a"
    assert json.loads((run / "meta.json").read_text())["args"]["feed_last_action"] is fed
    saved = open_agent(run, env=GAME)
    assert saved.options.feed_last_action is saved.network.config.feed_last_action is fed
    capsys.readouterr()
    for preset in ([], ["--preset", "paper"]):
        assert atari.main([*command, *preset]) == 0
        assert "has finished its 80 agent steps" in capsys.readouterr().out
    played = ["--env", GAME, "--episodes", "2", "--repeats", "1"]
    assert evaluate.main([str(run), *played]) == 0
    said = capsys.readouterr()
    no_clip = f"note: no clip: {GAME} draws no pictures: its constructor has no render_mode"
    assert [line for line in said.err.splitlines() if "clip" in line] == [no_clip]
    (file,) = (run / "evaluations").glob("*.json")
    assert [game["agent_steps"] for game in json.loads(file.read_text())["episodes"]] == [103] * 2


def test_a_game_without_pictures_is_filmed_by_its_input_and_memory(tmp_path, capsys):
    assert atari.main([*SMALL, "--savedir", str(tmp_path), "--xpid", "a"]) == 0
    out = tmp_path / "film.gif"
    assert watch.main([str(tmp_path / "a"), "--env", GAME, "--frames", "3", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert f"note: the film will not show the game itself: {GAME} draws no pictures" in said
    with Image.open(out) as film:
        assert film.n_frames == 3 and film.width == 1280


def test_the_last_action_cannot_change_in_a_resumed_run(tmp_path, capsys):
    atari.main([*SMALL, "--savedir", str(tmp_path), "--xpid", "a"])
    with pytest.raises(SystemExit, match="2"):
        resume = ["--resume", str(tmp_path / "a"), "--env", GAME, "--feed-last-action", "false"]
        atari.main(resume)
    said = capsys.readouterr().err
    assert "contradict --resume: --feed-last-action False (was True)" in said
