"""TorchBeast's `model.tar`: the same network with other names gives the same outputs."""

import argparse
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fastweights.evaluation.evaluation_file import evaluations_in
from fastweights.evaluation.films import film_title
from fastweights.launch import evaluate
from fastweights.records.checkpoints import CheckpointError
from fastweights.training.saved_agent import open_agent

ACTIONS = 6


class PolyBeast(nn.Module):
    """PolyBeast's network, written from its description, with the names of its files."""

    def __init__(self, use_lstm: bool):
        super().__init__()
        stages = [(4, 16), (16, 32), (32, 32)]
        self.feat_convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.MaxPool2d(3, 2, 1)) for a, b in stages
        )
        self.resnet1 = nn.ModuleList(self._unit(b) for _, b in stages)
        self.resnet2 = nn.ModuleList(self._unit(b) for _, b in stages)
        self.fc = nn.Linear(3872, 256)
        if use_lstm:
            self.core = nn.LSTM(257, 256)
        self.policy = nn.Linear(256 if use_lstm else 257, ACTIONS)
        self.baseline = nn.Linear(256 if use_lstm else 257, 1)

    @staticmethod
    def _unit(channels: int) -> nn.Sequential:
        convs = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        return nn.Sequential(nn.ReLU(), convs[0], nn.ReLU(), convs[1])

    def forward(self, frame, reward, done):
        """Compute logits [T, B, A] and values [T, B] from a fresh memory."""
        x = frame.flatten(0, 1).float() / 255
        for convolve, one, two in zip(self.feat_convs, self.resnet1, self.resnet2, strict=True):
            x = convolve(x)
            x = x + one(x)
            x = x + two(x)
        x = F.relu(self.fc(F.relu(x).flatten(1))).unflatten(0, reward.shape)
        x = torch.cat([x, reward.clamp(-1, 1)[..., None]], -1)
        if hasattr(self, "core"):
            state, rows = (torch.zeros(1, x.shape[1], 256), torch.zeros(1, x.shape[1], 256)), []
            for row, over in zip(x, done, strict=True):
                state = tuple((~over).float()[:, None] * part for part in state)
                y, state = self.core(row[None], state)
                rows.append(y[0])
            x = torch.stack(rows)
        return self.policy(x), self.baseline(x)[..., 0]


def save_run(network: PolyBeast, path, **changes) -> None:
    """Save a `model.tar` with everything that TorchBeast stores, including NumPy numbers."""
    flags = {"unroll_length": 20, "batch_size": 8, "learning_rate": 0.0004, "total_steps": 5_000}
    content = {
        "model_state_dict": network.state_dict(),
        "optimizer_state_dict": torch.optim.RMSprop(network.parameters()).state_dict(),
        "scheduler_state_dict": {"last_epoch": 3},
        "stats": {"step": 4_800, "episode_returns": (np.float32(1), np.float32(2))},
        "flags": {"env": "QbertNoFrameskip-v4", "xpid": "x", "disable_cuda": False, **flags},
    }
    torch.save(content | changes, path)


@pytest.mark.parametrize("use_lstm", [False, True])
def test_an_imported_network_computes_what_it_computed(use_lstm, tmp_path):
    torch.manual_seed(0)
    theirs = PolyBeast(use_lstm)
    save_run(theirs, tmp_path / "model.tar")
    agent = open_agent(tmp_path / "model.tar")
    assert agent.options.core == ("lstm" if use_lstm else "feedforward")
    assert (agent.step, agent.options.unroll_length) == (4_800, 20)
    assert agent.options.learner.learning_rate == 0.0004
    frame = torch.randint(0, 256, (4, 2, 4, 84, 84), dtype=torch.uint8)
    reward, done = torch.randn(4, 2) * 2, torch.zeros(4, 2, dtype=torch.bool)
    done[0] = done[2, 1] = True
    actions = torch.zeros(4, 2, dtype=torch.int64)
    with torch.no_grad():
        logits, values = theirs(frame, reward, done)
        output, _ = agent.network(frame, reward, done, actions, agent.network.initial_state(2))
    assert torch.allclose(output.policy_logits, logits, atol=1e-5)
    assert torch.allclose(output.value, values, atol=1e-5)


def test_a_torchbeast_folder_is_evaluated(tmp_path, capsys):
    """The file lies in its run folder and, as PolyBeast's does, names no game."""
    save_run(PolyBeast(use_lstm=False), tmp_path / "model.tar", flags={})
    few = ["--episodes", "1", "--repeats", "1", "--max-frames", "12", "--no-clip"]
    assert evaluate.main([str(tmp_path), "--env", "Qbert", *few]) == 0
    (evaluation,) = evaluations_in(tmp_path).values()
    assert (evaluation.env, evaluation.agent_steps, evaluation.core) == (
        "Qbert",
        4_800,
        "feedforward",
    )


def test_a_seed_that_the_file_does_not_have_is_left_out(tmp_path):
    save_run(PolyBeast(use_lstm=False), tmp_path / "model.tar")
    agent = open_agent(tmp_path / "model.tar")
    title = "feedforward on QbertNoFrameskip-v4, 4,800 agent steps"
    assert agent.seed is None and film_title(agent) == title
    assert evaluate.main([str(tmp_path), "--export", str(tmp_path / "agent")]) == 0
    card = (tmp_path / "agent" / "README.md").read_text()
    assert "4,800 agent steps of training. All options" in card and "training, seed" not in card
    assert "seed" not in json.loads((tmp_path / "agent" / "config.json").read_text())["flags"]
    assert film_title(open_agent(tmp_path / "agent")) == title


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"flags": {}}, "add --env"),
        ({"flags": argparse.Namespace(env="Pong")}, "Python objects (argparse.Namespace)"),
        ({"model_state_dict": {"conv1.weight": torch.zeros(1)}}, "not PolyBeast's ResNet"),
        ({"model_state_dict": [1]}, "must be dicts"),
        ({"flags": {"env": "NoSuchGame"}}, "unknown environment"),
    ],
)
def test_other_files_are_refused_in_one_line(changes, says, tmp_path, capsys):
    save_run(PolyBeast(use_lstm=True), tmp_path / "model.tar", **changes)
    with pytest.raises(SystemExit) as exit_:
        evaluate.main([str(tmp_path / "model.tar")])
    line = capsys.readouterr().err
    assert exit_.value.code == 2
    assert line.startswith("error: ") and says in line and line.count("\n") == 1


def test_weights_of_another_shape_are_refused(tmp_path):
    network = PolyBeast(use_lstm=False)
    weights = network.state_dict() | {"fc.weight": torch.zeros(256, 7)}
    save_run(network, tmp_path / "model.tar", model_state_dict=weights)
    with pytest.raises(CheckpointError, match="does not fit"):
        open_agent(tmp_path / "model.tar")
