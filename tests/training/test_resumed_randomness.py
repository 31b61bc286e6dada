"""The random draws of a resumed run.

Updates continue as in the uninterrupted run. If the games can be restored, the resumed run equals
the uninterrupted run wherever it was cut. Other games (those of ale-py among them) start anew.
Their seeds, and those of their actions, are made from the run's seed and the step at which it
resumes (docs/design/lockstep.md).
"""

import itertools
import shutil
import signal

import numpy as np
import pytest
import small_runs
import torch
from small_runs import GROUPS, assert_same_run, train

from fastweights import envs
from fastweights.agents.actor import Actor, Collected
from fastweights.agents.learner import Learner
from fastweights.agents.network import Network, NetworkConfig
from fastweights.envs.t_maze import TMaze
from fastweights.host.progress import ProgressDisplay
from fastweights.records.checkpoints import load_checkpoint
from fastweights.training.environments import make_environments
from fastweights.training.options import RunOptions
from fastweights.training.seeds import action_seed, environment_seed
from tests.launch.test_own_cores import CORE
from tests.launch.test_own_kinds import WITH_DROPOUT

FIVE_UPDATES = ("--total-steps", 100)
STEPS = 20  # agent steps in an update: four environments, five steps each
NEW_GAMES = ("--env", "CartPole-v1")  # Gymnasium's games cannot be restored
MEMORY = ("--core", "rdn", "--core-width", 16, "--core-heads", 2, "--core-layers", 1)


def cut(folder, xpid, monkeypatch, after: int, *options) -> None:
    """Run until update number `after` is shown, and stop there."""

    class Stopping(ProgressDisplay):
        def update(self, step, row):
            super().update(step, row)
            if row["updates"] == after:
                signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.agents.run.ProgressDisplay", Stopping)
        assert train(folder, xpid, *FIVE_UPDATES, *options) == 130


def resume(run) -> None:
    assert small_runs.atari.main(["--resume", str(run)]) == 0


@pytest.fixture
def collected(monkeypatch) -> list[tuple[int, Collected]]:
    """Record every rollout that an actor collects, with its generator's seed."""
    found, collect = [], Actor.collect

    def listen(self, length, **how):
        found.append((self.generator.initial_seed(), collect(self, length, **how)))
        return found[-1][1]

    monkeypatch.setattr(Actor, "collect", listen)
    return found


def frames_from(step: int, actions) -> np.ndarray:
    """Return the frames that a run resumed at `step` sees if it takes these actions."""
    options = RunOptions(env="CartPole-v1", core="feedforward", num_envs=4)
    environments = make_environments(options, 4, environment_seed(options.seed, step))
    rows = [environments.reset(), *map(environments.step, actions)]
    return np.stack([row.frame for row in rows])


@pytest.mark.parametrize("updates", [1, 3])
def test_a_resumed_run_has_the_games_and_actions_of_its_step(
    updates, collected, tmp_path, monkeypatch
):
    cut(tmp_path, "run", monkeypatch, updates, *NEW_GAMES)
    assert len(collected) == updates
    resume(tmp_path / "run")
    assert len(collected) == 5
    for at, (begun, *later) in ((0, collected[:updates]), (updates * STEPS, collected[updates:])):
        seeds = [seed for seed, _ in (begun, *later)]
        assert seeds == len(seeds) * [action_seed(1, at, 0)]
        first = begun[1].rollout
        assert np.array_equal(first.frame, frames_from(at, first.action.numpy()))
    before, after = (collected[number][1].rollout for number in (0, updates))
    assert not torch.equal(before.frame, after.frame)
    assert not torch.equal(before.action, after.action)


def test_an_asynchronous_run_s_groups_have_the_actions_of_its_step(
    collected, tmp_path, monkeypatch
):
    cut(tmp_path, "run", monkeypatch, 2, *GROUPS)
    step = load_checkpoint(tmp_path / "run" / "model.tar")["step"]
    begun = {seed for seed, _ in collected}
    collected.clear()
    resume(tmp_path / "run")
    resumed = {seed for seed, _ in collected}
    assert step > 0 and begun and resumed  # on a busy machine one group may be ahead of the other
    assert begun <= {action_seed(1, 0, group) for group in range(2)}
    assert resumed <= {action_seed(1, step, group) for group in range(2)}


def test_two_runs_resumed_from_one_checkpoint_are_the_same_run(collected, tmp_path, monkeypatch):
    cut(tmp_path, "one", monkeypatch, 2, *MEMORY)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    played = []
    for name in ("one", "two"):
        collected.clear()
        resume(tmp_path / name)
        played.append([rollout for _, (rollout, *_) in collected])
    for one, two in zip(*played, strict=True):
        assert torch.equal(one.frame, two.frame) and torch.equal(one.action, two.action)
    assert len(played[0]) == 3
    assert_same_run(tmp_path / "one", tmp_path / "two")


WHOLE = {
    "a maze, V-trace": ("--env", "TMaze", "--env-options", "corridor=3", *MEMORY),
    "pictures, LSTM": ("--env", "Catch", "--env-options", "pictures=true", "--core", "lstm"),
    "sample reuse": (
        *("--env", "TMaze", *MEMORY, "--objective", "ppo", "--optimizer", "adam"),
        *("--epochs", 2, "--minibatches", 2, "--normalize-advantages"),
        *("--normalize-values", "--value-scale", 0.01),  # a unit that moves
    ),
    "two batches a collection": ("--env", "TMaze", *MEMORY, "--batch-size", 2),
}


@pytest.mark.parametrize("options", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("after", [2, 4])
def test_a_run_cut_anywhere_equals_the_whole_run(after, options, collected, tmp_path, monkeypatch):
    """Compare lives and games in progress, frames, actions, losses and weights."""
    assert train(tmp_path, "whole", *FIVE_UPDATES, *options) == 0
    whole = [rollout for _, rollout in collected]
    collected.clear()
    cut(tmp_path, "cut", monkeypatch, after, *options)
    resume(tmp_path / "cut")
    for one, (_, two) in zip(whole, collected, strict=True):
        assert torch.equal(one.rollout.frame, two.rollout.frame)
        assert torch.equal(one.rollout.action, two.rollout.action)
        assert (one.episodes, one.lives) == (two.episodes, two.lives)
    assert sum(len(one.episodes) for one in whole) > 0
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def stop_in(monkeypatch, kind: type, method: str, call: int) -> None:
    """Send Ctrl-C at the beginning of the method's call number `call`."""
    whole, calls = getattr(kind, method), itertools.count(1)

    def stopping(self, *given):
        if next(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return whole(self, *given)

    monkeypatch.setattr(kind, method, stopping)


@pytest.mark.parametrize(
    ("kind", "method", "call", "updates"),
    [(Actor, "step", 3, 0), (Actor, "step", 13, 2), (Learner, "_gradient", 3, 2)],
    ids=["first collection", "a later collection", "gradient"],
)
@pytest.mark.parametrize("options", [WHOLE["a maze, V-trace"], WHOLE["pictures, LSTM"]])
def test_a_run_cut_within_an_update_equals_the_whole_run(
    options, kind, method, call, updates, tmp_path, monkeypatch
):
    assert train(tmp_path, "whole", *FIVE_UPDATES, *options) == 0
    with monkeypatch.context() as patch:
        stop_in(patch, kind, method, call)
        assert train(tmp_path, "cut", *FIVE_UPDATES, *options) == 130
    assert load_checkpoint(tmp_path / "cut" / "model.tar")["step"] == updates * STEPS
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(
    ("kind", "method", "call"), [(Actor, "step", 13), (Learner, "_gradient", 3)]
)
def test_a_memory_with_dropout_cut_within_an_update_equals_the_whole_run(
    kind, method, call, own_module, tmp_path, monkeypatch
):
    own_module("users_memory", WITH_DROPOUT)
    options = (*FIVE_UPDATES, "--env", "TMaze", "--core", CORE, "--core-width", 16)
    assert train(tmp_path, "whole", *options) == 0
    with monkeypatch.context() as patch:
        stop_in(patch, kind, method, call)
        assert train(tmp_path, "cut", *options) == 130
    assert small_runs.atari.main(["--resume", str(tmp_path / "cut"), "--core", CORE]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class ClosedForGood(TMaze):
    """A maze that cannot be stored once it is closed."""

    def snapshot(self):
        if self.closed:
            raise RuntimeError("closed")
        return super().snapshot()


def test_games_are_stored_before_they_are_closed(register_game, tmp_path, monkeypatch):
    register_game("ClosedForGood-v0", vector_entry_point=ClosedForGood)
    options = ("--env", "ClosedForGood-v0", *MEMORY)
    assert train(tmp_path, "whole", *FIVE_UPDATES, *options) == 0
    cut(tmp_path, "cut", monkeypatch, 2, *options)
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class WithTotal(TMaze):
    """A maze that counts its rewards; the sum becomes a number of NumPy."""

    total = 0.0

    def step(self, action):
        row = super().step(action)
        self.total += row[1].sum()
        return row

    def snapshot(self):
        return super().snapshot() | {"total": self.total}

    def restore(self, snapshot):
        super().restore(snapshot)
        self.total = snapshot["total"]


def test_numbers_of_numpy_are_stored(register_game, tmp_path, monkeypatch):
    register_game("WithTotal-v0", vector_entry_point=WithTotal)
    options = ("--env", "WithTotal-v0", *MEMORY)
    assert train(tmp_path, "whole", *FIVE_UPDATES, *options) == 0
    cut(tmp_path, "cut", monkeypatch, 2, *options)
    games = load_checkpoint(tmp_path / "cut" / "model.tar")["games"]
    assert type(games["environments"]["game"]["total"]) is float
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class Unstorable(TMaze):
    """A maze whose state is no plain value from its third update on."""

    steps = 0

    def step(self, action):
        self.steps += 1
        return super().step(action)

    def snapshot(self):
        return super().snapshot() | ({"own": object()} if self.steps > 12 else {})


def test_games_that_cannot_be_stored_do_not_cost_the_weights(register_game, tmp_path, capsys):
    register_game("Unstorable-v0", vector_entry_point=Unstorable)
    assert train(tmp_path, "run", *FIVE_UPDATES, "--env", "Unstorable-v0", *MEMORY) == 0
    saved = load_checkpoint(tmp_path / "run" / "model.tar")
    assert saved["step"] == 100 and "games" not in saved
    (warning,) = (line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert "cannot be saved (TypeError: snapshot" in warning and "object" in warning
    assert warning.endswith("a resumed run will begin new games")


def test_random_numbers_of_another_kind_of_device_are_begun_anew():
    """A state of 16 bytes is a GPU's; it cannot be given to the CPU's generator."""
    network = Network(NetworkConfig(frame_shape=(4,), num_actions=3, core="lstm"))
    actor = Actor(network, envs.make("TMaze", 4), generator=torch.Generator())
    actor.collect(3)
    stored = actor.snapshot()
    before = actor.generator.get_state()
    actor.collect(3)
    drawn = actor.generator.get_state()
    actor.restore(stored | {"generator": torch.zeros(16, dtype=torch.uint8), "device": "cuda"})
    assert torch.equal(actor.generator.get_state(), drawn)
    assert torch.equal(actor.snapshot()["row"][0], stored["row"][0])
    actor.restore(stored)
    assert torch.equal(actor.generator.get_state(), before)


@pytest.fixture
def drawn(monkeypatch) -> list[float]:
    """Let each update draw a number from torch, as dropout in a core would, and record it."""
    found, update = [], Learner.update

    def draw(self, rollout):
        found.append(float(torch.rand(())))
        return update(self, rollout)

    monkeypatch.setattr(Learner, "update", draw)
    return found


@pytest.mark.parametrize("schedule", [(), GROUPS], ids=["lockstep", "asynchronous"])
def test_updates_draw_in_a_cut_run_what_they_draw_in_the_whole(
    schedule, drawn, tmp_path, monkeypatch
):
    assert train(tmp_path, "whole", *FIVE_UPDATES, *schedule) == 0
    whole = drawn.copy()
    assert len(set(whole)) == 5
    for after in (1, 4):
        drawn.clear()
        cut(tmp_path, f"cut-{after}", monkeypatch, after, *schedule)
        resume(tmp_path / f"cut-{after}")
        assert drawn == whole
