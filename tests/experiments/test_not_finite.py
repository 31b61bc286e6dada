"""A run of a sequence task ends before it saves weights that are not finite."""

import json
from pathlib import Path

import pytest
import torch
from test_sequence_run import LISTS, error_of, train

from fastweights.experiments.learning import RESULT_FILE
from fastweights.launch import list_ops
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.tasks.train import Trainer


def assert_finite(run: Path, step: int) -> None:
    for name in ("model.tar", "checkpoints/best.pt", f"checkpoints/step_{step:012d}.pt"):
        kept = load_checkpoint(run / name)
        assert kept["step"] <= step
        assert all(tensor.isfinite().all() for tensor in kept["model_state_dict"].values()), name
    assert load_checkpoint(run / "model.tar")["step"] == step


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ((), "lower --learning-rate, or --clip below 0.1\n"),
        (("--average", "0.9"), "lower --learning-rate, or --clip below 0.1\n"),
        (("--clip", "0"), "lower --learning-rate, or set --clip\n"),
    ],
    ids=str,
)
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_saved(
    options, advice, tmp_path, monkeypatch, capsys
):
    """One infinite entry, in the update after which the second epoch is measured and saved."""
    update = Trainer.update

    def broken(self, batch):
        if self.updates == 9:
            next(self.model.parameters()).register_hook(
                lambda gradient: gradient.index_fill(0, torch.tensor([0]), torch.inf)
            )
        return update(self, batch)

    monkeypatch.setattr(Trainer, "update", broken)
    words = [*LISTS, *options, "--savedir", tmp_path, "--xpid", "a"]
    said = error_of(list_ops.main, words, capsys)
    assert said == f"error: the gradient's norm became inf at update 10: {advice}"
    assert_finite(tmp_path / "a", 5)
    monkeypatch.undo()
    assert list_ops.main(["--resume", str(tmp_path / "a"), "--num-threads", "1"]) == 0
    assert train(tmp_path, "whole", *options) == 0
    losses = [read_logs(tmp_path / name)["total_loss"] for name in ("a", "whole")]
    assert losses[0] == losses[1]
    assert json.loads((tmp_path / "a" / RESULT_FILE).read_text())["updates"] == 15


def test_weights_that_are_not_finite_are_not_saved(tmp_path, capsys):
    """The gradient of the first update is finite; the step is beyond the largest float."""
    far = ("--learning-rate", "1e39", "--evaluate-every", "1")
    words = [*LISTS, *far, "--savedir", tmp_path, "--xpid", "a"]
    said = error_of(list_ops.main, words, capsys)
    assert said.startswith("error: update 1 gave non-finite weights: lower --learning-ra")
    kept = load_checkpoint(tmp_path / "a" / "model.tar")
    assert kept["step"] == 0
    assert all(tensor.isfinite().all() for tensor in kept["model_state_dict"].values())
