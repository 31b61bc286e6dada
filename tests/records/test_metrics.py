"""Rows of logs.csv and TensorBoard; resuming a run does not change them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fastweights.records.checkpoints import load_checkpoint, save_checkpoint
from fastweights.records.log_table import LogTable, read_logs
from fastweights.records.metrics import Metrics

ROOT = Path(__file__).parents[2]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


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


def test_tensorboard_has_grouped_names_over_agent_steps(tmp_path):
    table = LogTable(tmp_path)
    metrics = Metrics(table.log, tmp_path / "tensorboard")
    metrics.add_game(7.0, 10, 40)
    row = {"step": 640, "pg_loss": torch.tensor(0.5), "agent_steps_per_second": 99.0}
    metrics.log(row | {"mine": 1, "entropy_loss": float("nan"), "note": "text"})
    metrics.close()
    found = scalars(tmp_path / "tensorboard")
    assert found["returns/full_game_mean"] == [(640, 7.0)]
    assert found["loss/policy_gradient"] == [(640, 0.5)]
    assert found["throughput/agent_steps_per_second"] == [(640, 99.0)]
    assert found["other/mine"] == [(640, 1.0)]
    assert "loss/entropy" not in found and "other/note" not in found
    assert not any("step" in tag.split("/")[-1].split("_")[:1] for tag in found)
    assert read_logs(tmp_path)["pg_loss"] == [0.5]


def test_after_a_resume_tensorboard_forgets_what_was_beyond_the_checkpoint(tmp_path):
    first = Metrics(lambda row: None, tmp_path)
    for step in (10, 20, 30):
        first.log({"step": step, "total_loss": 1.0})
    first.close()
    second = Metrics(lambda row: None, tmp_path, resumed_at=20)
    second.log({"step": 30, "total_loss": 2.0})
    second.close()
    assert scalars(tmp_path)["loss/total"] == [(10, 1.0), (20, 1.0), (30, 2.0)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("ending", ["written out meanwhile", "closed"])
def test_a_full_disk_ends_tensorboard_with_one_line_and_not_the_run(
    ending, tmp_path, capfd, monkeypatch
):
    rows = []
    monkeypatch.setattr(
        "fastweights.records.tensorboard._FLUSH_INTERVAL", 0.0 if ending != "closed" else 60.0
    )
    metrics = Metrics(rows.append, tmp_path)
    os.dup2(os.open("/dev/full", os.O_WRONLY), metrics._scalars._records._writer.fileno())
    for step in (1, 2):
        metrics.log({"step": step, "total_loss": 1.0})
    metrics.close()
    assert len(rows) == 2
    said = capfd.readouterr().err
    assert said.startswith("warning: no more TensorBoard") and "No space left" in said
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_made_ends_tensorboard_too(tmp_path, capsys):
    (tmp_path / "tensorboard").write_text("")
    Metrics(lambda row: None, tmp_path / "tensorboard").log({"step": 1})
    assert capsys.readouterr().err.count("\n") == 1


def test_tensorboard_reads_a_resumed_runs_file_last_whatever_the_clock_says(tmp_path, monkeypatch):
    Metrics(lambda row: None, tmp_path).close()
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)  # the clock is set back by decades
    second = Metrics(lambda row: None, tmp_path, resumed_at=20)
    second.close()
    first, again = sorted(tmp_path.iterdir())
    assert first.stat().st_ino != again.stat().st_ino
    assert int(again.name.split(".")[3]) == int(first.name.split(".")[3]) + 1


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
