"""A run that fails before it begins closes its environments, and torch's settings are restored."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from fastweights.experiments import run_agent
from fastweights.training import RunOptions, preset


class Fails(Exception):
    """The error of a user's game."""


class Game(gymnasium.Env):
    """A game that notes whether it is open, and fails where it is told to."""

    observation_space, action_space = Box(-1, 1, (3,)), Discrete(2)
    fails_in: str | None = None
    made = closed = 0

    def __init__(self):
        Game.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._fail("reset")
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._fail("step")
        return np.zeros(3, np.float32), 0.0, False, False, {}

    def close(self):
        Game.closed += 1

    def _fail(self, method: str) -> None:
        if method == self.fails_in:
            raise Fails(method)


@pytest.fixture
def options(tmp_path, monkeypatch, register_game) -> RunOptions:
    monkeypatch.setattr(Game, "made", 0)
    monkeypatch.setattr(Game, "closed", 0)
    register_game("LeftOpen-v0", entry_point=Game)
    tiny = preset("maze", "lstm", env="LeftOpen-v0")
    sizes = {"num_envs": 4, "batch_size": 4, "unroll_length": 8, "core_width": 8}
    where = {"savedir": tmp_path, "xpid": "run", "evaluate_episodes": 0}
    return replace(tiny, **sizes, **where, learner=replace(tiny.learner, total_steps=64))


@pytest.mark.parametrize("schedule", ["lockstep", "asynchronous"])
@pytest.mark.parametrize("fails_in", ["reset", "step", "the network", "the run's folder", None])
def test_every_game_is_closed(schedule, fails_in, options, tmp_path, monkeypatch):
    monkeypatch.setattr(Game, "fails_in", fails_in)
    if fails_in == "the network":
        options = replace(options, init_from=_another(tmp_path))
    if fails_in == "the run's folder":
        (tmp_path / "file").touch()
        options = replace(options, savedir=tmp_path / "file")
    options = replace(options, schedule=schedule)
    if fails_in is None:
        assert run_agent(options) == 0
    else:
        with pytest.raises((Fails, ValueError)):
            run_agent(options)
    assert Game.closed == Game.made > 0


def _another(folder) -> str:
    """Return a run whose weights do not fit."""
    where = {"savedir": folder, "xpid": "wide", "evaluate_episodes": 0}
    wide = preset("maze", "lstm", env="Catch")
    learner = replace(wide.learner, total_steps=64)
    sizes = {"num_envs": 4, "batch_size": 4, "unroll_length": 8}
    assert run_agent(replace(wide, **sizes, **where, learner=learner)) == 0
    return str(folder / "wide")


def test_torch_s_settings_are_restored(options, monkeypatch):
    threads, cudnn = torch.get_num_threads(), torch.backends.cudnn
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    monkeypatch.setattr(cudnn, "deterministic", False)
    assert run_agent(replace(options, num_threads=threads + 1)) == 0
    assert torch.get_num_threads() == threads
    assert cudnn.allow_tf32 and not cudnn.deterministic
