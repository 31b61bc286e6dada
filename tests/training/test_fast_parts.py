"""The parts that make a run fast are in use in runs of the command."""

from types import SimpleNamespace

import pytest
import torch
from small_runs import train
from torch import nn

from fastweights.agents.learner import Learner
from fastweights.agents.stem import PooledConv2d, ResidualUnit
from fastweights.records.log_table import read_logs

PONG = ("--env", "Pong", "--stem", "resnet", "--num-envs", 2, "--batch-size", 2)
ONE_UPDATE = ("--unroll-length", 2, "--total-steps", 4)


@pytest.fixture
def convolutions(monkeypatch):
    """Record weights and results of the first stage and a later residual unit during runs."""
    seen, update = [], Learner.update

    def watched(self, rollout):
        kinds = PooledConv2d, ResidualUnit
        layers = [m for m in self.network.stem.modules() if isinstance(m, kinds)]
        for layer in (layers[0], layers[-1]):
            layer.register_forward_hook(lambda layer, inputs, output: seen.append((layer, output)))
        return update(self, rollout)

    monkeypatch.setattr(Learner, "update", watched)
    return seen


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_stem_computes_as_asked_and_channels_last(precision, convolutions, tmp_path):
    assert train(tmp_path, "run", *PONG, *ONE_UPDATE, "--precision", precision) == 0
    assert len(convolutions) == 2
    for layer, output in convolutions:
        assert output.dtype is getattr(torch, precision)
        assert all(weight.dtype is torch.float32 for weight in layer.parameters())
        assert output.is_contiguous(memory_format=torch.channels_last)
        assert not output.is_contiguous()


@pytest.mark.compiler
def test_no_64_bit_indices_are_made_in_pooling(tmp_path, monkeypatch):
    def refusing(pool):
        def pooled(x, *arguments, **options):
            # A single picture, from which features are counted.
            assert len(x) == 1, "PyTorch's pooling was called"
            return pool(x, *arguments, **options)

        return pooled

    for module, name in ((nn.functional, "max_pool2d"), (torch, "max_pool2d_with_indices")):
        pool = getattr(module, name, None)
        monkeypatch.setattr(module, name, refusing(pool), raising=False)
    assert train(tmp_path, "run", *PONG, *ONE_UPDATE) == 0


@pytest.mark.parametrize("tuned", [True, False])
def test_the_allocator_is_tuned_unless_it_is_not_wanted(tuned, tmp_path, monkeypatch):
    calls = []
    used = "fastweights.experiments.agents.run.tune_allocator"
    monkeypatch.setattr(used, lambda: calls.append(1))
    flag = "--tune-memory" if tuned else "--no-tune-memory"
    assert train(tmp_path, "run", flag, "--total-steps", 20) == 0
    assert len(calls) == tuned


def test_the_logged_rate_is_steps_by_time(tmp_path, monkeypatch):
    """The clock advances only in updates, each a second longer than the last."""
    update, now = Learner.update, 0.0

    def slow(self, rollout):
        nonlocal now
        now += self.updates + 1
        return update(self, rollout)

    monkeypatch.setattr(Learner, "update", slow)
    monkeypatch.setattr("fastweights.training.loop.time", SimpleNamespace(monotonic=lambda: now))
    assert train(tmp_path, "run", "--total-steps", 100) == 0
    logs = read_logs(tmp_path / "run" / "logs.csv")
    assert logs["agent_steps_per_second"] == pytest.approx([20 / n for n in range(1, 6)])


def test_the_logged_cpu_time_is_this_processs_from_row_to_row(tmp_path, monkeypatch):
    """The clock advances only in updates, each a second longer than the last."""
    update, now = Learner.update, 0.0

    def busy(self, rollout):
        nonlocal now
        now += self.updates + 1
        return update(self, rollout)

    monkeypatch.setattr(Learner, "update", busy)
    monkeypatch.setattr("fastweights.training.loop.process_time", lambda: now)
    assert train(tmp_path, "run", "--total-steps", 100) == 0
    assert read_logs(tmp_path / "run" / "logs.csv")["cpu_seconds"] == [1, 2, 3, 4, 5]
