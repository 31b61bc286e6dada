"""Rows of an agent's log; resuming a run does not change them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastweights.records.checkpoints import load_checkpoint, save_checkpoint
from fastweights.records.metrics import Metrics

ROOT = Path(__file__).parents[2]


def test_a_tick_reports_its_own_games_and_the_recent_ones():
    rows = []
    metrics = Metrics(rows.append, window=2)
    metrics.log({"step": 10})
    for value in (1.0, 2.0, 6.0):
        metrics.add_game(value, agent_steps=int(value) * 10, emulator_frames=int(value) * 40)
    metrics.add_life(0.5)
    metrics.log({"step": 20, "total_loss": 3.0})
    metrics.log({"step": 30})
    assert rows[0]["episode_returns"] is None and rows[0]["recent_full_game_return"] is None
    assert rows[1]["episode_returns"] == (1.0, 2.0, 6.0) and rows[1]["total_loss"] == 3.0
    assert rows[1]["mean_episode_return"] == 3.0 and rows[1]["mean_episode_step"] == 30.0
    assert rows[1]["recent_full_game_return"] == 4.0  # of the last two games
    assert rows[1]["recent_game_agent_steps"] == 40 and rows[1]["mean_life_return"] == 0.5
    assert rows[1]["recent_game_emulator_frames"] == 160
    assert rows[2]["episode_returns"] is None and rows[2]["recent_full_game_return"] == 4.0
    assert rows[2]["games"] == 3 and rows[2]["lives"] == 1


def test_a_resume_through_a_checkpoint_changes_no_row(tmp_path):
    def play(metrics: Metrics, tick: int) -> None:
        for game in range(tick % 3):
            metrics.add_game(tick + game / 8, tick, 4 * tick)
            metrics.add_life(np.float32(tick))

    straight, resumed = [], []
    one, two = Metrics(straight.append, window=3), Metrics(resumed.append, window=3)
    for tick in range(5):
        for metrics in (one, two):
            metrics.log({"step": tick})
            play(metrics, tick)
    save_checkpoint({"metrics": two.state_dict()}, tmp_path / "a.pt")
    three = Metrics(resumed.append, window=3)
    three.load_state_dict(load_checkpoint(tmp_path / "a.pt")["metrics"])
    for tick in range(5, 12):
        for metrics in (one, three):
            play(metrics, tick)
            metrics.log({"step": tick})
    assert straight == resumed and len(straight) == 12


def test_what_the_log_refuses_passes_through():
    def refuse(_):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        Metrics(refuse).log({"step": 1})


def test_imports_are_light_and_quiet():
    script = (
        "import sys, fastweights.records.metrics, fastweights.host.progress\n"
        "import fastweights.evaluation.pictures, fastweights.records.run_folder\n"
        "print({'torch', 'tensorboard', 'matplotlib', 'imageio_ffmpeg'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
