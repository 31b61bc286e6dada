"""The benchmark of stems: silence and spread, for untrained stems and trained agents."""

import json
import shutil

import pytest
import torch

from benchmarks import stems
from fastweights.agents import build_stem
from fastweights.launch import atari


def test_silence_and_spread_by_hand():
    features = torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 2.0]])
    filters = torch.zeros(2, 4, 2, 2)
    filters[1, 2, 0, 1] = 0.5
    outputs = torch.tensor([[3.0, 3.0, -1.0], [5.0, 3.0, 1.0]])
    found = stems.told(features, filters, outputs)
    assert found.silent_features == pytest.approx(1 / 3) and found.silent_filters == 0.75
    assert found.mean == pytest.approx(8 / 6) and found.spread == pytest.approx(2**0.5 / 3)
    assert found.constant == pytest.approx((25 / 3) ** 0.5)  # of 4, 3, 0
    assert found.varying == pytest.approx((2 / 3) ** 0.5)


def outputs_of(stem, frames):
    return stem.project(stem.convolutions(frames).flatten(1).relu())


def test_only_the_first_frames_count_and_no_blank_ones():
    stem = build_stem("shallow_norm", (1, 84, 84))
    frames = torch.randint(1, 256, (6, 1, 84, 84), dtype=torch.uint8)
    frames[1] = 0
    with stems.listening(stem, 4) as heard:
        found = stem(frames)
    assert torch.equal(heard.features[0], found[[0, 2, 3]])
    assert torch.equal(heard.outputs[0], outputs_of(stem, frames)[[0, 2, 3]])
    assert heard.filters[0].shape[:2] == (3, 16)


def test_stems_as_drawn_and_trained(tmp_path, monkeypatch, capsys):
    for name, size in {"DRAWS": 1, "EARLIER": 2, "STEPS": 3}.items():
        monkeypatch.setattr(stems, name, size)
    recipe = ["--env", "Pong", "--stem", "shallow_norm", "--core", "lstm", "--core-width", "8"]
    size = ["--num-envs", "2", "--batch-size", "2", "--unroll-length", "2", "--total-steps", "4"]
    where = ["--num-threads", "1", "--savedir", str(tmp_path), "--xpid", "run"]
    assert atari.main([*recipe, *size, *where]) == 0
    runs, file = [str(tmp_path / name) for name in ("run", "again")], tmp_path / "stems.json"
    shutil.copytree(*runs)
    stems.main(["--runs", *runs, "--json", str(file)])
    found = json.loads(file.read_text())["stems"]
    trained = [f"shallow_norm: lstm after 4 agent steps ({run})" for run in runs]
    names = ("resnet", "shallow", "shallow_norm", "shallow_soft_centred", "shallow_centred")
    assert list(found) == [*(f"{name}, as drawn" for name in names), *trained]
    spreads = [found[f"{name}, as drawn"]["spread"] for name in names[1:]]
    assert spreads[3] > spreads[2] > spreads[1] > 3 * spreads[0] > 0
    assert all(0 < found[name]["silent_features"] < 1 for name in trained)
    with pytest.raises(SystemExit, match="2"):
        stems.main(["--env", "Qbert", "--runs", *runs])
    assert "not an agent for Qbert" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        stems.main(["--env", "TMaze"])
    assert "TMaze has no image observations" in capsys.readouterr().err
