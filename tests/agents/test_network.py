"""The network: inputs of the core, outputs of the heads, and the options that change them."""

import pytest
import torch

from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES, count_parameters
from fastweights.kernels.recurrence import map_state

T, B, ACTIONS = 4, 3, 5


def build(core: str = "rdn", frame_shape: tuple[int, ...] = (6,), **changes) -> Network:
    torch.manual_seed(0)
    tiny = {"layers": 1, "width": 8, "heads": 2, "feedforward": 8}
    options = tuple((key, tiny[key]) for key in CORES[core].options() if key in tiny)
    config = NetworkConfig(
        frame_shape=frame_shape, num_actions=ACTIONS, core=core, core_options=options, **changes
    )
    return Network(config).double()


@pytest.fixture
def rows():
    return {
        "frame": torch.randn(T, B, 6),
        "reward": torch.rand(T, B) - 0.5,
        "is_first": torch.zeros(T, B, dtype=torch.bool),
        "last_action": torch.randint(0, ACTIONS, (T, B)),
    }


def outputs(net: Network, rows) -> tuple[torch.Tensor, torch.Tensor]:
    return net(**rows, state=net.initial_state(B))[0]


def same(one, other) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("core", CORES)
def test_logits_and_values_for_every_row(core, rows):
    logits, value = outputs(build(core), rows)
    assert logits.shape == (T, B, ACTIONS)
    assert value.shape == (T, B)


@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 64, 64), (1, 20, 20)])
@pytest.mark.parametrize("stem", ["auto", "shallow"])
def test_pictures_of_any_size(shape, stem, rows):
    rows["frame"] = torch.randint(0, 256, (T, B, *shape), dtype=torch.uint8)
    logits, _ = outputs(build(frame_shape=shape, stem=stem), rows)
    assert logits.shape == (T, B, ACTIONS)
    assert logits.isfinite().all()


def test_heads_read_the_core(rows):
    net = build("feedforward")
    logits, value = outputs(net, rows)
    features = torch.cat(
        [
            net.stem(rows["frame"].flatten(0, 1)).unflatten(0, (T, B)),
            rows["reward"].double()[..., None],
        ],
        -1,
    )
    torch.testing.assert_close(logits, net.policy(features), atol=1e-12, rtol=0)
    torch.testing.assert_close(value, net.value(features), atol=1e-12, rtol=0)


def test_the_core_sees_rewards_clipped_to_one(rows):
    net = build()
    rows["reward"] = torch.full((T, B), 1.0)
    one = outputs(net, rows)
    rows["reward"] = torch.full((T, B), 7.0)
    assert same(outputs(net, rows), one)
    rows["reward"] = torch.full((T, B), 0.9)
    assert not same(outputs(net, rows), one)
    rows["reward"] = torch.full((T, B), -1.0)
    least = outputs(net, rows)
    rows["reward"] = torch.full((T, B), -7.0)
    assert same(outputs(net, rows), least)
    assert not same(least, one)


@pytest.mark.parametrize("fed", [True, False])
def test_the_last_action_matters_only_where_it_is_fed(fed, rows):
    net = build(feed_last_action=fed)
    before = outputs(net, rows)
    rows["last_action"] = (rows["last_action"] + 1) % ACTIONS
    assert same(outputs(net, rows), before) != fed


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("what", ["reward", "last_action"])
def test_an_episode_begins_without_reward_and_action_if_inputs_are_reset(what, reset, rows):
    net = build(feed_last_action=True, reset_inputs=reset)
    first = rows["is_first"] = torch.tensor([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]).bool()
    before = outputs(net, rows)

    def changed(where: torch.Tensor) -> dict[str, torch.Tensor]:
        other = (rows[what] + 1) % ACTIONS if what == "last_action" else -rows[what]
        return rows | {what: torch.where(where, other, rows[what])}

    assert same(outputs(net, changed(first)), before) == reset
    assert not same(outputs(net, changed(~first)), before)
    step, _ = net.step(*(rows[name][0] for name in rows), state=net.initial_state(B))
    torch.testing.assert_close(step.value, before.value[0], atol=1e-12, rtol=0)
    for name in ("reward", "last_action"):
        rows[name] = rows[name].masked_fill(first, 0)
    assert same(outputs(build(feed_last_action=True), rows), outputs(net, rows))


def test_feeding_the_last_action_widens_the_cores_input_and_nothing_else():
    without, fed = build(), build(feed_last_action=True)
    assert without.core.input_size == 256 + 1
    assert fed.core.input_size == 256 + 1 + ACTIONS
    assert count_parameters(fed) - count_parameters(without) == ACTIONS * 8
    shapes = [{n: p.shape for n, p in net.named_parameters()} for net in (without, fed)]
    assert {name for name in shapes[0] if shapes[0][name] != shapes[1][name]} == {
        "core.embed.weight"
    }


@pytest.mark.parametrize(("bptt", "reached"), [(None, 4), (4, 4), (2, 2), (1, 1)])
def test_gradients_reach_back_as_far_as_the_config_says(bptt, reached, rows):
    net = build(bptt=bptt)
    frame = rows["frame"].requires_grad_()
    logits, _ = outputs(net, rows)
    (gradient,) = torch.autograd.grad(logits[-1].square().sum(), frame)
    rows_reached = gradient.abs().amax((1, 2)) > 0
    assert rows_reached.tolist() == [False] * (T - reached) + [True] * reached


def test_one_row_after_the_other_is_all_rows_at_once(rows):
    net = build()
    whole = outputs(net, rows)
    state = net.initial_state(B)
    for t in range(T):
        row = {name: tensor[t : t + 1] for name, tensor in rows.items()}
        output, state = net(**row, state=state)
        torch.testing.assert_close(output.policy_logits[0], whole[0][t], atol=1e-12, rtol=0)
        torch.testing.assert_close(output.value[0], whole[1][t], atol=1e-12, rtol=0)


def test_pictures_need_a_stem_for_pictures():
    with pytest.raises(ValueError, match="use --stem mlp"):
        build(stem="resnet")


def test_an_unknown_core_is_named():
    with pytest.raises(ValueError, match="unknown core 'ntm'"):
        Network(NetworkConfig(frame_shape=(4,), num_actions=2, core="ntm"))


def test_inspect_forgets_before_it_shows(rows):
    net = build()
    rows = {name: tensor[:1] for name, tensor in rows.items()}
    fresh = net.inspect(**rows, state=net.initial_state(B))
    spoilt = map_state(lambda tensor: tensor + torch.nan, net.initial_state(B))
    rows["is_first"] = torch.ones(1, B, dtype=torch.bool)
    for shown, expected in zip(net.inspect(**rows, state=spoilt), fresh, strict=True):
        assert same(shown.values(), expected.values())


def test_heads_drawn_orthogonal_begin_nearly_uniform_and_near_zero():
    net = build(head_init="orthogonal")
    singular = torch.linalg.svdvals(net.policy.weight)
    torch.testing.assert_close(singular, torch.full_like(singular, 0.01))
    torch.testing.assert_close(net.value.weight.norm(), torch.ones((), dtype=torch.float64))
    assert not net.policy.bias.any() and not net.value.bias.any()


@pytest.mark.parametrize("head", ["policy", "value"])
def test_a_normalised_head_sees_outputs_of_one_size(head, rows):
    """At any scale of the core, the heads see outputs with mean 0 and variance 1."""
    net = build(head_norm=True)
    seen = []
    getattr(net, head).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    outputs(net, rows)
    torch.testing.assert_close(seen[0].mean(-1), torch.zeros(T, B, dtype=torch.float64))
    torch.testing.assert_close(
        seen[0].var(-1, correction=0), torch.ones(T, B, dtype=torch.float64), atol=1e-2, rtol=0
    )


def test_values_are_in_the_head_s_unit(rows):
    one, four = build(value_scale=1.0), build(value_scale=4.0)
    four.load_state_dict(one.state_dict())
    torch.testing.assert_close(outputs(four, rows)[1], 4 * outputs(one, rows)[1])
