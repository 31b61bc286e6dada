"""Where a film ends, and what is left of one that is stopped."""

import signal

import imageio.v3 as imageio

from fastweights.evaluation.films.screen import Screen
from fastweights.launch import atari, watch
from tests.evaluation.test_films import FAST


def test_a_film_ends_where_evaluate_cuts_a_game_off(tmp_path, monkeypatch):
    """A stop keeps what was filmed by then."""
    where = ["--savedir", str(tmp_path), "--xpid", "catch", "--total-steps", "64"]
    assert atari.main(["--env", "Catch", "--core", "feedforward", *FAST, *where]) == 0
    out = tmp_path / "catch.mp4"
    words = [str(tmp_path / "catch"), "--out", str(out), "--num-threads", "1"]
    monkeypatch.setattr("fastweights.evaluation.rules.HALF_AN_HOUR", 5)
    assert watch.main(words) == 0
    assert len(imageio.imread(out)) == 5
    draw = Screen.draw

    def interrupted(screen, moment):
        if moment.step == 1:
            signal.raise_signal(signal.SIGINT)
        return draw(screen, moment)

    monkeypatch.setattr(Screen, "draw", interrupted)
    assert watch.main(words) == 128 + signal.SIGINT
    assert len(imageio.imread(out)) == 2
