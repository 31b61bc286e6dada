"""Runs, checkpoints and exports of an earlier revision still work (tests/samples/)."""

import shutil
from pathlib import Path

import pytest
import torch
from small_runs import StoppingDisplay

from fastweights.launch import atari, evaluate, list_ops
from fastweights.records.log_table import read_logs

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture
def kept(tmp_path) -> Path:
    return shutil.copytree(SAMPLES, tmp_path / "samples")


def test_a_run_goes_on(kept, monkeypatch):
    run = kept / "agent"
    last = read_logs(run / "logs.csv")["step"][-1]
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
    assert atari.main(["--resume", str(run)]) == 130
    steps = read_logs(run / "logs.csv")["step"]
    assert steps[-1] == last + 8  # one update of 2 x 4 agent steps
    (newest,) = run.glob(f"checkpoints/step_{last + 8:012}.pt")
    assert torch.load(newest, weights_only=True)["step"] == last + 8


@pytest.mark.parametrize("name", ["agent", "export"])
def test_it_is_evaluated(name, kept, capsys):
    few = ("--episodes", "2", "--repeats", "1", "--num-threads", "1")
    assert evaluate.main([str(kept / name), *few]) == 0
    assert "Catch" in capsys.readouterr().out


def test_a_finished_sequence_run_is_recognised(kept, capsys):
    with pytest.raises(SystemExit, match="2"):
        list_ops.main(["--resume", str(kept / "sequences")])
    assert "has finished" in capsys.readouterr().err
