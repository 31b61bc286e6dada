"""What is saved with a checkpoint, which becomes the best, and which stay."""

from types import SimpleNamespace

import pytest
from small_runs import train

from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.metrics import Metrics
from fastweights.training.keeping import save
from fastweights.training.options import RunOptions


def saved(folder: CheckpointFolder, metrics: Metrics, steps: int) -> None:
    training = SimpleNamespace(options=RunOptions(), metrics=metrics, steps=steps, checkpoint=dict)
    save(training, SimpleNamespace(checkpoints=folder))


def test_lucky_first_games_are_the_best_only_until_there_are_a_hundred(tmp_path):
    folder, metrics, best = CheckpointFolder(tmp_path), Metrics(lambda row: None), []
    for steps, count, points in ((10, 3, 100.0), (20, 100, 5.0), (30, 100, 4.0)):
        for _ in range(count):
            metrics.add_game(points, agent_steps=1, emulator_frames=4)
        saved(folder, metrics, steps)
        best.append(load_checkpoint(folder.best_path)["step"])
    assert best == [10, 20, 20]


def test_the_score_is_the_full_games_and_not_the_lives(tmp_path):
    folder, metrics = CheckpointFolder(tmp_path), Metrics(lambda row: None)
    for points in (4.0, 8.0):
        metrics.add_game(points, agent_steps=1, emulator_frames=4)
        for _ in range(3):
            metrics.add_life(points / 3)
    saved(folder, metrics, 10)
    assert load_checkpoint(folder.newest_path)["score"] == 6.0


@pytest.mark.parametrize("schedule", ["lockstep", "asynchronous"])
def test_a_run_saves_at_the_first_update_after_each_multiple(schedule, tmp_path):
    """Updates end after 20, 40, ... agent steps."""
    options = ("--schedule", schedule, "--total-steps", 160, "--keep-every", 50)
    assert train(tmp_path, "run", *options) == 0
    kept = (tmp_path / "run" / "checkpoints").glob("milestone_*")
    assert {path.name: load_checkpoint(path)["step"] for path in kept} == {
        "milestone_000000000050.pt": 60,
        "milestone_000000000100.pt": 100,
        "milestone_000000000150.pt": 160,
    }
