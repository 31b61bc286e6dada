"""The benchmark of how far an update moves the policy, and by which weights."""

import json
from contextlib import contextmanager

import pytest
import torch
from small_runs import train

from benchmarks import policy_movement
from fastweights.agents import Learner, LearnerConfig, Network, NetworkConfig, Rollout
from fastweights.training.saved_agent import open_agent


def test_the_divergence_by_hand():
    before = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    after = torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log()
    by_hand = 0.5 * torch.tensor(2.0).log() + 0.5 * torch.tensor(2 / 3).log()
    assert policy_movement.divergence(before, after) == pytest.approx(by_hand.item() / 2)


def test_weights_that_do_not_learn_do_not_move_the_policy(tmp_path, monkeypatch):
    """With stem and core frozen, the heads move the policy alone."""
    assert train(tmp_path, "run", "--core", "lstm", "--total-steps", 20) == 0

    @contextmanager
    def frozen(*how):
        with build(*how) as made:
            for name, weight in made.network.named_parameters():
                weight.requires_grad_(policy_movement.part_of(name) == "heads")
            yield made

    build = policy_movement.assembled
    monkeypatch.setattr(policy_movement, "assembled", frozen)
    for one in policy_movement.measured(open_agent(tmp_path / "run"), 2, 1e-3):
        assert one.whole == one.heads > 0 and one.stem == one.core == 0


@pytest.mark.parametrize("objective", ["ppo", "vtrace"])
def test_the_gain_by_hand(objective):
    """A logit is raised: the gain is the change of the actions' probabilities, in advantages."""
    frame = torch.rand(5, 2, 4)
    config = NetworkConfig(frame_shape=(4,), num_actions=3, core="feedforward")
    learner = Learner(Network(config), LearnerConfig(objective=objective))
    rows = torch.randn(5, 2), torch.zeros(5, 2, dtype=torch.bool), torch.zeros(5, 2).long()
    state = learner.network.initial_state(2)
    logits = learner.network(frame, *rows, state)[0].policy_logits[:-1].detach()
    action, none = torch.randint(3, (4, 2)), torch.zeros(4, 2)
    rollout = Rollout(frame, *rows, action, logits, none, none[:0], state)
    estimates, _ = learner.estimate(rollout)
    a = learner.objective.targets(estimates, learner.config).advantages
    a = (a - a.mean()) / (a - a.mean()).square().mean().sqrt()
    yardstick = policy_movement.Yardstick(learner, rollout)
    with torch.no_grad():
        learner.network.policy.bias[0] += 0.5
    raised = (logits + torch.tensor([0.5, 0.0, 0.0])).softmax(-1) / logits.softmax(-1)
    by_hand = (raised.gather(-1, rollout.action[..., None])[..., 0] - 1) * a
    assert yardstick.gain() == pytest.approx(by_hand.mean().item(), abs=1e-6)


def test_an_update_gains_as_much_elsewhere_if_that_is_its_own_batch(tmp_path, monkeypatch):
    def same(learner, other, rollout, elsewhere):
        return moved(learner, other, rollout, rollout)

    assert train(tmp_path, "run", "--total-steps", 20) == 0
    moved = policy_movement.moved
    monkeypatch.setattr(policy_movement, "moved", same)
    for one in policy_movement.measured(open_agent(tmp_path / "run"), 2, 1e-3):
        assert one.gain == one.gain_elsewhere != 0


def test_an_update_has_the_runs_batch(tmp_path, monkeypatch):
    streams, update = [], Learner.update

    def noted(self, rollout):
        streams.append(rollout.action.shape[1])
        return update(self, rollout)

    assert train(tmp_path, "run", "--batch-size", 2, "--total-steps", 20) == 0
    monkeypatch.setattr(Learner, "update", noted)
    policy_movement.measured(open_agent(tmp_path / "run"), 2, 1e-3)
    assert streams == [2, 2]  # the run has four environments


def test_runs_side_by_side_are_only_read(tmp_path, capsys):
    for core in ("lstm", "rdn"):
        assert train(tmp_path, core, "--core", core, "--total-steps", 20) == 0
    runs, file = [tmp_path / "lstm", tmp_path / "rdn"], tmp_path / "moved.json"
    before = {path: path.read_bytes() for run in runs for path in run.rglob("*") if path.is_file()}
    own = ["--updates", "2", "--learning-rate", "0.001", "--json", str(file)]
    policy_movement.main([*map(str, runs), *own])
    assert {path: path.read_bytes() for path in before} == before
    assert "lstm on Catch, 20 agent steps" in capsys.readouterr().out
    found = json.loads(file.read_text())["runs"]
    assert [run["core"] for run in found] == ["lstm", "rdn"]
    for run in found:
        assert len(run["updates"]) == 2
        for one in run["updates"]:
            gains = one.pop("gain"), one.pop("gain_elsewhere")
            assert min(one.values()) > 0 and gains[0] != gains[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "belongs to a finished run, whose learning rate is 0: give an earlier checkpoint"),
        (["--updates", "0"], "--updates must be at least 1, not 0"),
        (["--learning-rate", "nan"], "--learning-rate must be above 0, not nan"),
    ],
)
def test_bad_input_is_one_line(options, says, tmp_path, capsys):
    assert train(tmp_path, "run", "--total-steps", 20) == 0
    with pytest.raises(SystemExit, match="2"):
        policy_movement.main([str(tmp_path / "run"), *options])
    assert says in capsys.readouterr().err
