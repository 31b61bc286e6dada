"""Actors: actions sampled from the policy, and their random generator."""

import numpy as np
import pytest
import torch

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.network import Network, NetworkConfig

PI = torch.tensor([0.1, 0.6, 0.3])


def fixed_policy(core: str = "feedforward") -> Network:
    """Return a network whose policy is always PI."""
    net = Network(NetworkConfig(frame_shape=(4,), num_actions=3, core=core))
    with torch.no_grad():
        net.policy.weight.zero_()
        net.policy.bias.copy_(PI.log())
    return net


def actor(count: int = 8, **options) -> Actor:
    return Actor(fixed_policy(), envs.make("TMaze", count), **options)


def test_sampling_follows_the_policy():
    """Check with Pearson's chi-squared test; the number of draws makes a bias of 2 % visible."""
    player = actor(2000, generator=torch.Generator().manual_seed(3))
    actions = torch.cat([player.collect(20).rollout.action for _ in range(5)])
    expected = PI.double() * actions.numel()
    difference = torch.bincount(actions.flatten(), minlength=3) - expected
    assert (difference**2 / expected).sum() < 23.0  # if right, exceeded in one of 100,000 cases


def test_rows_and_streams_are_drawn_independently():
    actions = actor(500, generator=torch.Generator().manual_seed(3)).collect(20).rollout.action
    agreement = (0.1**2 + 0.6**2 + 0.3**2, 4 * (0.46 * 0.54 / 9500) ** 0.5)
    assert abs((actions[1:] == actions[:-1]).float().mean() - agreement[0]) < agreement[1]
    assert abs((actions[:, 1:] == actions[:, :-1]).float().mean() - agreement[0]) < agreement[1]


def test_a_generator_decides_the_actions_and_leaves_torchs_own_alone():
    def actions(seed: int):
        return actor(generator=torch.Generator().manual_seed(seed)).collect(20).rollout.action

    one = actions(1)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    player = actor(generator=torch.Generator().manual_seed(1))
    torch.manual_seed(5)
    again = player.collect(20).rollout.action
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, again)
    assert not torch.equal(one, actions(2))


def test_without_a_generator_torchs_own_is_drawn_from():
    def actions(seed: int):
        player = actor()
        torch.manual_seed(seed)
        return player.collect(20).rollout.action

    assert torch.equal(actions(1), actions(1))
    assert not torch.equal(actions(1), actions(2))


def test_a_snapshot_does_not_change_when_the_games_go_on():
    """Whatever the environments return: here, the arrays in which they count."""

    games, count = envs.make("TMaze", 2), np.zeros(2, np.int64)
    step = games.step

    def counted_step(action):
        np.add(count, 1, out=count)
        return step(action)

    games.step, games.snapshot = counted_step, lambda: {"count": count}
    player = Actor(fixed_policy(), games)
    player.collect(3)
    kept = player.snapshot()
    player.collect(4)
    assert kept["environments"]["count"].tolist() == [3, 3]


def test_a_restored_actor_goes_on_from_the_last_action():
    config = NetworkConfig(frame_shape=(4,), num_actions=3, core="lstm", feed_last_action=True)
    network = Network(config)
    one, two = (
        Actor(network, envs.make("TMaze", 8), generator=torch.Generator().manual_seed(seed))
        for seed in (1, 2)
    )
    one.collect(5)
    two.restore(one.snapshot())
    expected, found = (player.collect(5).rollout for player in (one, two))
    assert expected.last_action[0].any()
    for name in ("frame", "last_action", "action", "policy_logits"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_the_environment_gets_the_decision_and_the_actor_remembers_it():
    taken = []
    games = envs.make("TMaze", 8)
    player = Actor(fixed_policy(), games, generator=torch.Generator().manual_seed(0))
    step = games.step
    games.step = lambda action: taken.append(action.copy()) or step(action)
    decisions = [player.step() for _ in range(5)]
    np.testing.assert_array_equal(np.stack(taken), torch.stack([d.action for d in decisions]))
    assert torch.equal(player.last_action, decisions[-1].action)


def test_a_decision_holds_the_policy_and_value_of_the_row_it_answers():
    player = actor()
    row = player.row
    frame, reward = torch.from_numpy(row.frame)[None], torch.from_numpy(row.reward)[None]
    first, action = torch.ones(1, 8, dtype=torch.bool), torch.zeros(1, 8, dtype=torch.int64)
    arguments = (frame, reward, first, action)
    for seen, expected in zip(player.seen(), arguments, strict=False):
        assert torch.equal(seen, expected)
    decision = player.step()
    with torch.no_grad():
        output, _ = player.network(*arguments, player.network.initial_state(8))
    torch.testing.assert_close(decision.policy_logits, output.policy_logits[0])
    torch.testing.assert_close(decision.value, output.value[0])


@pytest.mark.parametrize("core", ["lstm", "rdn"])
def test_acting_builds_no_graph(core):
    player = Actor(fixed_policy(core), envs.make("TMaze", 2))
    rollout = player.collect(3).rollout
    assert not any(tensor.requires_grad for tensor in rollout[:-1])
    state = player.state if core == "lstm" else player.state[0]
    assert not any(tensor.requires_grad for tensor in state)


def test_actors_that_share_their_draws_act_as_one():
    def actions(player: Actor):
        return player.collect(20).rollout.action

    def draws():
        return torch.Generator().manual_seed(3)

    together = actions(actor(8, generator=draws()))
    parts = [
        Actor(
            fixed_policy(),
            envs.make("TMaze", len(streams), seed=streams.start),
            generator=draws(),
            streams=streams,
            of=8,
        )
        for streams in (range(3), range(3, 8))
    ]
    assert torch.equal(torch.cat([actions(part) for part in parts], 1), together)
    drawn = torch.multinomial(PI.expand(8, 3), 1, generator=draws()).squeeze(-1)
    assert torch.equal(together[0], drawn)
