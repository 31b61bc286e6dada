"""The how-to pages: their code runs and does what the text says."""

import re
import shlex
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from fastweights import envs
from fastweights.launch import atari, evaluate, export, report
from fastweights.records.log_table import read_logs

PAGES = Path(__file__).parents[2] / "docs" / "how_to"
COMMANDS = {"atari": atari, "evaluate": evaluate, "export": export, "report": report}
BRIEFLY = ("--total-steps", "4224", "--evaluate-episodes", "4", "--num-threads", "1")
FEW = ("--episodes", "2", "--repeats", "1", "--num-threads", "1")


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in fenced if name == language]


def code(page: str) -> dict:
    """Run a page's Python code from top to bottom and return the names that it defines."""
    names: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
    return names


def test_hidden_state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = code("hidden_state.md")
    assert names["y_t"].shape == (4, names["core"].output_size)
    assert (tmp_path / "state.pt").is_file()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write the page's environment into a file of a user's folder and change to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "recall.py").write_text(blocks("own_environment.md", "python")[0])
    yield tmp_path
    gymnasium.registry.pop("Recall-v0", None)
    sys.modules.pop("recall", None)  # the next import must register it again


@pytest.mark.docs
def test_own_environment(own):
    lines = [line for block in blocks("own_environment.md", "") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("python launch/")]
    assert len(commands) == 5
    for script, *arguments in commands:
        name = Path(script).stem
        more = {"atari": BRIEFLY, "evaluate": FEW}.get(name, ())
        assert COMMANDS[name].main([*arguments, *more]) == 0
    assert (own / "recall-report" / "report.html").is_file()


@pytest.mark.docs
def test_its_game_needs_a_memory(own):
    """Run the page's command and compare with the page's figures."""
    options = "--preset maze --env recall:Recall-v0 --total-steps 100000 --num-threads 1"
    returns = {}
    for core in ("delta_net", "feedforward"):
        assert atari.main([*options.split(), "--core", core, "--xpid", core]) == 0
        logs = read_logs(own / "runs" / core / "logs.csv")
        returns[core] = logs["recent_full_game_return"][-1]
    assert returns["delta_net"] > 0.9 and abs(returns["feedforward"]) < 0.4


def test_a_wrapped_action_space(monkeypatch):
    names: dict = {}
    exec(compile(blocks("own_environment.md", "python")[1], "page", "exec"), names)
    try:
        environments = envs.make("DiscretePendulum-v0", 2)
        assert environments.num_actions == 5
        environments.close()
    finally:
        gymnasium.registry.pop("DiscretePendulum-v0", None)


class Forbidding(gymnasium.Env):
    """Observations are noise; half of the actions are forbidden at each step, the others pay."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)
    forbidden = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action):
        Forbidding.forbidden += not self.mask[action]
        self.time += 1
        return self._observation(), float(action % 2), self.time == 10, False, {}

    def _observation(self):
        self.mask = np.zeros(4, bool)
        self.mask[self.np_random.permutation(4)[:2]] = True
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Watched:
    """Environments that record each choice and the mask at that step.

    The wrapper replaces a forbidden choice before the game sees it, so the game cannot count them.
    """

    def __init__(self, environments):
        self.environments, self.chosen, self.masks = environments, [], []

    def __getattr__(self, name):
        return getattr(self.environments, name)

    def reset(self):
        self.row = self.environments.reset()
        return self.row

    def step(self, action):
        self.chosen.append(action.copy())
        self.masks.append(self.row.frame[:, -4:].copy())
        self.row = self.environments.step(action)
        return self.row


def masked_environments(wrapper):
    def make():
        return wrapper(Forbidding(), lambda one: one.unwrapped.mask)

    gymnasium.register("Forbidding-v0", entry_point=make)
    try:
        return envs.make("Forbidding-v0", 8)
    finally:
        gymnasium.registry.pop("Forbidding-v0", None)


@pytest.mark.docs
def test_masked_policies_choose_no_forbidden_action(shapes_unchecked):
    names = code("action_masks.md")
    environments = masked_environments(names["Masked"])
    watched = Watched(environments)
    torch.manual_seed(1)
    names["train"](watched, 2_000)
    taken = np.stack(watched.chosen)
    allowed = np.take_along_axis(np.stack(watched.masks), taken[..., None], 2)
    assert taken.size >= 2_000 and allowed.all()
    assert set(np.unique(taken)) == {0, 1, 2, 3}


def test_the_wrapper_replaces_a_forbidden_action():
    names = code("action_masks.md")
    env = names["Masked"](Forbidding(), lambda one: one.unwrapped.mask)
    observation, _ = env.reset(seed=1)
    Forbidding.forbidden = 0
    for _ in range(9):
        action = int(np.flatnonzero(observation[-4:] == 0)[0])
        observation, *_ = env.step(action)
    assert Forbidding.forbidden == 0 and observation.shape == (6,)


@pytest.mark.docs
def test_an_exported_agent_plays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--preset", "maze", "--core", "rdn", "--xpid", "maze", "--savedir", "runs"]
    assert atari.main([*options, *BRIEFLY]) == 0
    assert export.main(["runs/maze", "--out", "agent.onnx"]) == 0
    act = code("export.md")["act"]
    game = envs.make("TMaze", 1, seed=5, options={"corridor": 10})
    row, action = game.reset(), 0
    for _ in range(30):
        action = act(row.frame[0], row.reward[0], row.is_first[0], action)
        row = game.step(np.array([action]))
