"""TensorBoard's files: what is in them, after a resume, too, and what cannot be written."""

import os
import time
from pathlib import Path

import pytest
import torch

from fastweights.records.tensorboard import Scalars


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_names_are_grouped_and_the_axis_is_agent_steps(tmp_path):
    written = Scalars(tmp_path / "tensorboard")
    row = {"step": 640, "pg_loss": torch.tensor(0.5), "agent_steps_per_second": 99.0}
    games = {"recent_full_game_return": 7.0, "episode_returns": (7.0,), "mean_life_return": None}
    written.write(row | games | {"mine": 1, "entropy_loss": float("nan"), "note": "text"})
    written.close()
    found = scalars(tmp_path / "tensorboard")
    assert found == {
        "returns/full_game_mean": [(640, 7.0)],
        "loss/policy_gradient": [(640, 0.5)],
        "throughput/agent_steps_per_second": [(640, 99.0)],
        "other/mine": [(640, 1.0)],
    }


def test_after_a_resume_what_was_beyond_the_checkpoint_is_forgotten(tmp_path):
    first = Scalars(tmp_path)
    for step in (10, 20, 30):
        first.write({"step": step, "total_loss": 1.0})
    first.close()
    second = Scalars(tmp_path, resumed_at=20)
    second.write({"step": 30, "total_loss": 2.0})
    second.close()
    assert scalars(tmp_path)["loss/total"] == [(10, 1.0), (20, 1.0), (30, 2.0)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("ending", ["written out meanwhile", "closed"])
def test_a_full_disk_is_one_line_and_no_error(ending, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(
        "fastweights.records.tensorboard._FLUSH_INTERVAL", 0.0 if ending != "closed" else 60.0
    )
    written = Scalars(tmp_path)
    os.dup2(os.open("/dev/full", os.O_WRONLY), written._records._writer.fileno())
    for step in (1, 2):
        written.write({"step": step, "total_loss": 1.0})
    written.close()
    said = capfd.readouterr().err
    assert said.startswith("warning: no more TensorBoard") and "No space left" in said
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line_too(tmp_path, capsys):
    (tmp_path / "tensorboard").write_text("")
    Scalars(tmp_path / "tensorboard").write({"step": 1})
    assert capsys.readouterr().err.count("\n") == 1


def test_a_resumed_runs_file_is_read_last_whatever_the_clock_says(tmp_path, monkeypatch):
    Scalars(tmp_path).close()
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)  # the clock is set back by decades
    Scalars(tmp_path, resumed_at=20).close()
    first, again = sorted(tmp_path.iterdir())
    assert first.stat().st_ino != again.stat().st_ino
    assert int(again.name.split(".")[3]) == int(first.name.split(".")[3]) + 1
