"""Whole runs that use each batch several times: replay, resuming, asynchronous, logs."""

import pytest
from small_runs import GROUPS, StoppingDisplay, logged, train, weights

from fastweights.agents import Learner
from fastweights.experiments.agents import run
from fastweights.launch import atari, replay
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs

REUSE = ("--objective", "ppo", "--epochs", 2, "--minibatches", 2, "--optimizer", "adam")
REUSE = (*REUSE, "--normalize-advantages", "--reduction", "mean", "--total-steps", 400)
COLUMNS = ("approx_kl", "clip_fraction", "explained_variance", "gradient_steps")


def reuse(objective: str, *options: object) -> list:
    """Return the options of sample reuse with another objective; V-trace has no normalisation."""
    given = [*REUSE, "--objective", objective, *options]
    if objective == "vtrace":
        given.remove("--normalize-advantages")
    return given


@pytest.mark.parametrize("objective", ["ppo", "appo", "vtrace"])
@pytest.mark.parametrize("bptt", ["full", 1])
def test_its_first_updates_are_the_same_again_bit_for_bit(objective, bptt, tmp_path, capsys):
    options = reuse(objective, "--core", "rdn", "--bptt", bptt)
    assert train(tmp_path, "reuse", *options) == 0
    assert replay.main([str(tmp_path / "reuse")]) == 0
    assert "identical: 10 updates, 200 agent steps" in capsys.readouterr().out


def test_the_log_says_how_far_the_policy_moved(tmp_path):
    assert train(tmp_path, "reuse", *REUSE) == 0
    logs = read_logs(tmp_path / "reuse")
    assert logs["updates"] == list(range(1, 21)) and logs["policy_lag"] == [0] * 20
    assert logs["gradient_steps"] == [4] * 20
    for name in COLUMNS:
        assert all(isinstance(value, int | float) for value in logs[name]), name
    assert all(0 <= kl < 0.1 for kl in logs["approx_kl"]) and max(logs["approx_kl"]) > 0
    assert all(0 <= share <= 1 for share in logs["clip_fraction"])


def test_a_game_is_counted_once_however_often_its_batch_is_used(tmp_path):
    """A game of Catch has nine steps; four environments play five of them an update."""
    assert train(tmp_path, "reuse", *REUSE, "--total-steps", 100) == 0
    logs = read_logs(tmp_path / "reuse")
    assert logs["games"] == [4 * (5 * update // 9) for update in range(1, 6)]
    assert logs["lives"] == logs["games"]


@pytest.mark.parametrize(
    ("options", "has_values"),
    [
        (REUSE, True),
        ((*REUSE, "--num-envs", 8), False),  # the second batch of a collection has older values
        ((*REUSE, *GROUPS), False),
        (("--total-steps", 100), False),  # V-trace computes its targets anew
    ],
)
def test_values_are_kept_from_acting_where_the_learner_has_the_same_weights(
    options, has_values, tmp_path, monkeypatch
):
    learned_from = []
    update = Learner.update
    monkeypatch.setattr(Learner, "update", lambda s, r: (learned_from.append(r), update(s, r))[1])
    assert train(tmp_path, "run", *options) == 0
    assert len(learned_from) >= 5
    for rollout in learned_from:
        assert rollout.value.shape == (6 if has_values else 0, 4)


@pytest.mark.parametrize("objective", ["vtrace", "ppo", "appo"])
def test_asynchronous_runs_reuse_batches_too(objective, tmp_path):
    assert train(tmp_path, "reuse", *reuse(objective, *GROUPS)) == 0
    logs = read_logs(tmp_path / "reuse")
    assert logs["gradient_steps"] == [4] * 20 and logs["step"][-1] == 400


def test_a_resumed_run_keeps_adams_state_and_the_schedule(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(run, "ProgressDisplay", StoppingDisplay)
        assert train(tmp_path, "reuse", *REUSE) == 130
    before = weights(tmp_path / "reuse")
    assert atari.main(["--resume", str(tmp_path / "reuse")]) == 0
    logs = logged(tmp_path / "reuse")
    assert logs["updates"] == list(range(1, 21))
    rates = [6e-4 * (1 - step / 400) for step in logs["step"]]
    assert logs["learning_rate"] == pytest.approx(rates)
    after = weights(tmp_path / "reuse")
    assert any((after[name] != weight).any() for name, weight in before.items())
    states = load_checkpoint(tmp_path / "reuse" / "model.tar")["optimizer_state_dict"]["state"]
    assert {int(state["step"]) for state in states.values()} == {20 * 4}


def test_another_objective_is_refused_on_resuming(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        patched.setattr(run, "ProgressDisplay", StoppingDisplay)
        assert train(tmp_path, "reuse", *REUSE) == 130
    with pytest.raises(SystemExit, match="2"):
        atari.main(["--resume", str(tmp_path / "reuse"), "--objective", "appo"])
    said = capsys.readouterr().err
    assert "--objective appo (was ppo)" in said and said.count("\n") == 1
