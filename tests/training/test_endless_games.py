"""Runs of a game that goes on for ever: time limits, and values far above one."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from small_runs import GROUPS, train

from fastweights.records import read_logs
from fastweights.training import open_agent

WAGES = "fastweights-tests/Wages-v0"
REWARD, DISCOUNT, LIMIT = 0.5, 0.9, 4
LEARNS = ("--core", "feedforward", "--discounting", DISCOUNT, "--env-options")
LEARNS = (*LEARNS, f"max_episode_steps={LIMIT}", "--learning-rate", 0.03, "--reduction", "mean")
LEARNS = (*LEARNS, "--total-steps", 1_500, "--env", WAGES)


class Wages(gymnasium.Env):
    """Always shows the same and pays the same."""

    observation_space, action_space = Box(0, 1, (2,)), Discrete(2)

    def __init__(self, times: float = 1.0):
        self.reward = times * REWARD

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), self.reward, False, False, {}


@pytest.fixture(autouse=True)
def wages(register_game):
    register_game(WAGES, entry_point=Wages)


def value_of(run) -> float:
    network = open_agent(run).network
    row = torch.ones(1, 1, 2), torch.full((1, 1), REWARD), torch.zeros(1, 1, dtype=torch.bool)
    output, _ = network(*row, torch.zeros(1, 1, dtype=torch.int64), network.initial_state(1))
    return output.value.item()


@pytest.mark.parametrize("schedule", [(), GROUPS], ids=["lockstep", "asynchronous"])
def test_the_value_is_that_of_the_game_without_a_limit(schedule, tmp_path):
    assert train(tmp_path, "run", *LEARNS, *schedule, "--bootstrap-truncated") == 0
    assert value_of(tmp_path / "run") == pytest.approx(REWARD / (1 - DISCOUNT), rel=0.1)


def test_as_published_a_cut_off_episode_counts_as_ended(tmp_path):
    """All steps look alike, so the value is the mean of those with 4, 3, 2 and 1 rewards left."""
    assert train(tmp_path, "run", *LEARNS, "--unroll-length", LIMIT) == 0
    left = [REWARD * (1 - DISCOUNT**count) / (1 - DISCOUNT) for count in range(1, LIMIT + 1)]
    assert value_of(tmp_path / "run") == pytest.approx(sum(left) / LIMIT, rel=0.1)


@pytest.mark.parametrize(
    ("rewards", "unit", "said"),
    [
        # As long as no value is learned, a step has one to five rewards of 100 left in its rollout.
        (200.0, (), r"note: the value targets are about 3\d\d in .* --value-scale [34]00$"),
        (200.0, ("--objective", "ppo"), r"note: the value targets are .* --normalize-values$"),
        (200.0, ("--value-scale", 300), ""),
        (200.0, ("--objective", "ppo", "--normalize-values"), ""),
        (1.0, (), ""),
    ],
)
def test_large_values_are_named_with_what_helps(rewards, unit, said, tmp_path, capsys):
    options = ("--env", WAGES, "--env-options", f"times={rewards}", "--reward-clipping", "none")
    options = (*options, "--learning-rate", 0, *unit, "--total-steps", 500)
    assert train(tmp_path, "run", *options) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "value targets" in line]
    assert len(notes) == bool(said) and all(map(re.compile(said).match, notes))
    rms = read_logs(tmp_path / "run")["value_target_rms"]
    # A row of five rewards and an unlearned value: sum over steps of the discounted rewards left.
    left = [sum(0.99**k for k in range(count)) for count in range(1, 6)]
    wanted = REWARD * rewards * np.sqrt(np.mean(np.square(left)))
    assert rms[19] == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(
    ("rewards", "clipping", "said"), [(200, "abs_one", 1), (2, "abs_one", 0), (200, "none", 0)]
)
def test_a_game_whose_rewards_are_clipped_is_named(rewards, clipping, said, tmp_path, capsys):
    options = ("--env", WAGES, "--env-options", f"times={rewards}", "--reward-clipping", clipping)
    assert train(tmp_path, "run", *options, "--total-steps", 60) == 0
    note = "note: rewards as large as 100 are clipped to [-1, 1] in the losses"
    assert capsys.readouterr().err.count(note) == said
