"""Cores as published: parameter counts by hand, feature maps, initialisation; bad options."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES, alone, build_core, core_kind, count_parameters
from fastweights.cores.lstm import LSTM, LSTMConfig
from fastweights.kernels.feature_maps import FEATURE_MAPS, feature_map

ACTIONS, FEATURES = 18, 256
CORE_INPUT = FEATURES + 1  # features and the reward


def convolution(channels_in: int, channels: int) -> int:
    return channels_in * channels * 3 * 3 + channels


def linear(size_in: int, size: int) -> int:
    return size_in * size + size


CONVOLUTIONS = (
    (convolution(4, 16) + 4 * convolution(16, 16))
    + (convolution(16, 32) + 4 * convolution(32, 32))
    + (convolution(32, 32) + 4 * convolution(32, 32))
)
STEM = CONVOLUTIONS + linear(32 * 11 * 11, FEATURES)


def heads(size: int) -> int:
    return linear(size, ACTIONS) + linear(size, 1)


def stack(memory: int, width: int = 128, layers: int = 2) -> int:
    """Count the parameters of an agent; `memory` counts one layer's memory with its slow net."""
    norm, project = 2 * width, width * width
    feedforward = norm + linear(width, 512) + linear(512, width)
    blocks = layers * (norm + memory + project + feedforward)
    return STEM + linear(CORE_INPUT, width) + blocks + heads(width)


BY_HAND = {
    "feedforward": STEM + heads(CORE_INPUT),
    "feedforward_gated": CONVOLUTIONS
    + linear(32 * 11 * 11, 320)
    + 4 * linear(321, 256)
    + heads(256),
    "lstm": STEM + 4 * 256 * (CORE_INPUT + 256 + 2) + heads(256),
    "elman": STEM + 256 * (CORE_INPUT + 256 + 2) + heads(256),
    "gru": STEM + 3 * 256 * (CORE_INPUT + 256 + 2) + heads(256),
    "e_lstm": STEM
    + (2 * linear(CORE_INPUT, 256) + 2 * 256 + linear(CORE_INPUT + 256, 256))
    + heads(256),
    "qrnn": STEM + 3 * linear(2 * CORE_INPUT, 256) + heads(256),
    "cnn": STEM + linear(8 * CORE_INPUT, 256) + heads(256),
    "stack_rnn": STEM
    + (256 * (CORE_INPUT + 8 + 256 + 2) + linear(256, 3) + linear(256, 8))
    + heads(256),
    "transformer": stack(128 * 4 * (3 * 32)),
    "lt": stack(128 * 4 * (3 * 32)),
    "delta_net": stack(128 * 4 * (3 * 32 + 1)),
    "gated_delta_net": stack(128 * 4 * (3 * 32 + 2) + 2 * 4),
    "delta_product": stack(128 * 4 * (32 + 2 * (2 * 32 + 1))),
    "gated_delta_product": stack(128 * 4 * (32 + 2 * (2 * 32 + 1) + 1) + 2 * 4),
    "delta_mlp": stack(128 * 4 * (32 + (32 + 128 + 1) + (128 + 32 + 1))),
    "delta_delta": stack(128 * 4 * (5 * 32 + 2)),
    "mlstm": stack(128 * 4 * (4 * 32 + 2) + 2 * 4),
    "rdn": stack(128 * 4 * (3 * 32 + 1) + 4 * (3 * 32 * 32 + 32)),
    "rdn_large": stack(256 * 8 * (3 * 32 + 1) + 8 * (3 * 32 * 32 + 32), width=256, layers=4),
    "delta_rnn": stack(128 * 4 * (5 * 32 + 2)),
    "delta_lstm": stack(128 * 4 * (15 * 32 + 6)),
    "srwm": stack(8 * 16 * (3 * 16 + 4)),
}
PUBLISHED = {  # millions; Irie et al. 2021, appendix C
    "feedforward": 1.094,
    "lstm": 1.621,
    "lt": 1.520,
    "delta_net": 1.521,
    "rdn": 1.546,
    "delta_rnn": 1.588,
}


@pytest.mark.parametrize("name", CORES)
def test_parameter_count_is_the_architectures(name):
    config = NetworkConfig(frame_shape=(4, 84, 84), num_actions=ACTIONS, core=name)
    assert count_parameters(Network(config)) == BY_HAND[name]


def test_the_count_by_hand_is_the_published_one():
    assert BY_HAND["feedforward"] == 1_094_134
    assert BY_HAND["lstm"] == 1_621_475
    assert {name: int(BY_HAND[name] / 1e3 + 0.5) / 1e3 for name in PUBLISHED} == PUBLISHED
    assert round(BY_HAND["rdn_large"] / 1e6, 1) == 3.4
    assert round(BY_HAND["feedforward_gated"] / 1e6, 1) == 1.7


def test_default_feature_maps():
    maps = {n: k.config.feature_map for n, k in CORES.items() if "feature_map" in k.options()}
    assert maps == {
        "lt": "elu_sum",
        "delta_net": "elu_sum",
        "gated_delta_net": "elu_sum",
        "delta_product": "silu_unit",
        "gated_delta_product": "silu_unit",
        "delta_mlp": "softmax",
        "delta_delta": "softmax",
        "rdn": "softmax",
        "rdn_large": "softmax",
        "delta_rnn": "softmax",
        "delta_lstm": "softmax",
        "srwm": "softmax",
    }


@pytest.mark.parametrize("core", ["delta_rnn", "delta_lstm"])
@pytest.mark.parametrize("feature_map", ["softmax", "elu_sum"])
def test_recurrent_keys_have_the_other_keys_map_unless_told(core, feature_map):
    x, told = torch.randn(3, 5), {"elu_sum": "softmax", "softmax": "elu_sum"}[feature_map]
    keys = []
    for recurrent in (None, feature_map, told):
        torch.manual_seed(1)
        options = {"feature_map": feature_map, "recurrent_feature_map": recurrent}
        memory = build_core(core, 5, layers=1, width=8, heads=2, **options)
        (layer,) = memory.inspect(x, memory.initial_state(3))
        keys.append((layer["key"], layer["recurrent_key"]))
    (key, default), (same_key, same), (told_key, other) = keys
    assert torch.equal(key, same_key) and torch.equal(key, told_key)
    assert torch.equal(default, same) and not torch.allclose(default, other)


def test_the_normaliser_changes_the_answers_and_no_weight():
    cores = []
    for normaliser in ("none", "key_sum"):
        torch.manual_seed(1)
        cores.append(build_core("lt", 5, layers=1, width=8, heads=2, normaliser=normaliser))
    plain, normalised = (core.state_dict() for core in cores)
    assert list(plain) == list(normalised)
    assert all(torch.equal(plain[name], normalised[name]) for name in plain)
    x = torch.randn(3, 5)
    answers = [core.step(x, core.initial_state(3))[0] for core in cores]
    assert not torch.allclose(*answers)


@pytest.mark.parametrize("part", ["query", "key", "value", "strength"])
def test_recurrent_weights_begin_normal_with_one_over_the_root_of_the_head_size(part):
    memory = build_core("rdn", 3, layers=1, width=512, heads=8).blocks[0].memory
    weights = getattr(memory, f"recurrent_{part}")  # 8 x 64 x 64, or 8 x 64
    standard_error = 1 / 8 / weights.numel() ** 0.5
    assert abs(weights.mean()) < 4 * standard_error
    assert abs(weights.std() - 1 / 8) < 4 * standard_error


@pytest.mark.parametrize(
    ("start", "query_scale", "strength_mean"), [("agents", 1.0, 0.0), ("languages", 0.01, -1.0)]
)
def test_self_referential_weights_begin_normal(start, query_scale, strength_mean):
    core = build_core("srwm", 3, layers=1, width=512, heads=8, start=start)
    weights = core.blocks[0].memory.initial_weights
    scales, means = (1, query_scale, 1, 1), (0, 0, 0, strength_mean)
    blocks = weights.split([64, 64, 64, 4], -1)
    for columns, scale, mean in zip(blocks, scales, means, strict=True):
        standard_error = scale / 8 / columns.numel() ** 0.5
        assert abs(columns.mean() - mean) < 4 * standard_error
        assert abs(columns.std() - scale / 8) < 4 * standard_error


@pytest.mark.parametrize(("gate", "biases"), [("sigmoid", [3, 4, 5, 6]), ("exponential", [0] * 4)])
def test_a_matrix_lstm_begins_to_forget_at_the_published_rates(gate, biases):
    memory = build_core("mlstm", 16, layers=1, width=16, heads=4, forget_gate=gate).blocks[0].memory
    assert memory.forget_bias.tolist() == biases
    assert memory.input_bias.abs().max() < 1


def test_a_gated_memory_begins_to_fade_at_the_published_rates():
    memory = build_core("gated_delta_net", 3, layers=1, width=512, heads=256).blocks[0].memory
    rates, steps = memory.log_rate.exp(), torch.nn.functional.softplus(memory.decay_bias)
    assert 1 <= rates.min() < 2 and 15 < rates.max() <= 16
    assert 0.00099 <= steps.min() < 0.002 and 0.05 < steps.max() <= 0.1001


def test_forget_bias_is_added_to_the_forget_gates_and_to_nothing_else():
    cells = []
    for changes in ({}, {"forget_bias": 4.0}):
        torch.manual_seed(1)
        cells.append(build_core("lstm", 3, width=5, **changes).cell.state_dict())
    plain, biased = cells
    shift = {name: biased[name] - plain[name] for name in plain}
    expected = torch.zeros(20)
    expected[5:10] = 4.0  # gates i, f, g, o
    torch.testing.assert_close(shift.pop("bias_ih"), expected)
    assert all((tensor == 0).all() for tensor in shift.values())


def test_slow_net_and_output_projection_have_no_bias():
    block = build_core("delta_net", 3, width=8, heads=2).blocks[0]
    assert block.memory.slow_net.project.bias is None
    assert block.project.bias is None


def message(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_unknown_core_lists_the_known():
    with pytest.raises(ValueError, match="'ntm'") as error:
        core_kind("ntm")
    assert all(name in message(error) for name in CORES)


@pytest.mark.parametrize("name", CORES)
def test_unknown_option_lists_the_known(name):
    with pytest.raises(ValueError, match="'depth'") as error:
        build_core(name, 3, depth=2)
    assert all(option in message(error) for option in CORES[name].options() or ["none"])


def test_width_that_the_heads_do_not_divide():
    with pytest.raises(ValueError, match="width 10 cannot be split into 4 heads") as error:
        build_core("rdn", 3, width=10)
    assert message(error)


@pytest.mark.parametrize(
    ("core", "option"),
    [
        ("lt", "feature_map"),
        ("delta_rnn", "recurrent_feature_map"),
        ("delta_lstm", "recurrent_feature_map"),
    ],
)
def test_unknown_feature_map_lists_the_known(core, option):
    with pytest.raises(ValueError, match="'relu'") as error:
        build_core(core, 3, **{option: "relu"})
    assert "softmax, elu_sum, elu, identity, unit, silu_unit" in message(error)


@pytest.mark.parametrize(
    ("core", "option", "known"),
    [
        ("transformer", "norm", "pre, post, legacy_pre, legacy_raw"),
        ("transformer", "positions", "sinusoidal, none"),
        ("transformer", "embed", "linear, none"),
        ("rdn", "norm", "pre, post, legacy_pre, legacy_raw"),
        ("rdn", "output_scale", "one, head_size"),
        ("delta_mlp", "version", "A, B"),
        ("mlstm", "forget_gate", "sigmoid, exponential"),
        ("qrnn", "pooling", "fo, ifo"),
        ("lt", "normaliser", "none, key_sum"),
        ("delta_rnn", "version", "A, B"),
        ("delta_lstm", "version", "A, B, C, D"),
    ],
)
def test_an_unknown_choice_lists_the_known(core, option, known):
    with pytest.raises(ValueError, match=f"unknown {option} 'odd'; known: {known}") as error:
        build_core(core, 3, **{option: "odd"})
    assert message(error)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_a_sum_that_may_vanish_divides_nothing(name):
    """Signed keys and queries have weights of both signs."""
    build = partial(build_core, "lt", 3, normaliser="key_sum", feature_map=name)
    if (feature_map(name)(torch.tensor([-3.0, 0.1])) > 0).all():
        build()
        return
    says = f"may be 0 with the feature map '{name}'; use softmax, elu_sum or elu"
    with pytest.raises(ValueError, match=says) as error:
        build()
    assert message(error)


@pytest.mark.parametrize("option", ["layers", "width", "heads", "feedforward"])
def test_sizes_are_at_least_one(option):
    with pytest.raises(ValueError, match=f"'{option}' must be at least 1, not 0") as error:
        build_core("rdn", 3, **{option: 0})
    assert message(error)


DELTA_RULES = [name for name in CORES if "max_write_strength" in CORES[name].options()]


def test_every_delta_rule_can_write_with_strengths_to_two():
    assert [name for name, kind in CORES.items() if kind.delta_rule] == DELTA_RULES


@pytest.mark.parametrize("core", DELTA_RULES)
def test_the_largest_write_strength_is_one_or_two(core):
    for largest, rule in ((0, "at least 1, not 0"), (3, "at most 2")):
        with pytest.raises(ValueError, match=f"'max_write_strength' must be {rule}") as error:
            build_core(core, 3, max_write_strength=largest)
        assert message(error)


@pytest.mark.parametrize("core", DELTA_RULES)
def test_strengths_are_scaled_and_no_weight_is(core):
    x, found = 100 * torch.randn(50, 5), []
    for largest in (1, 2):
        torch.manual_seed(1)
        memory = build_core(core, 5, layers=1, width=8, heads=2, max_write_strength=largest)
        (layer,) = memory.inspect(x, memory.initial_state(50))
        strengths = [tensor for name, tensor in layer.items() if name.endswith("strength")]
        found.append((memory.state_dict(), strengths[0]))
    (weights, ones), (same, twos) = found
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    torch.testing.assert_close(twos, 2 * ones)
    assert 1 < twos.max() <= 2


def test_a_core_that_attends_has_a_window():
    with pytest.raises(ValueError, match="LSTM attends, so LSTMConfig needs a `window`"):
        alone(LSTM, "Attentive LSTM", LSTMConfig(), attends=True)


def test_a_switch_is_no_size(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Switched(LSTMConfig):
        gated: bool = True

    class Core(LSTM):
        def __init__(self, input_size: int, config: Switched):
            super().__init__(input_size, config)
            self.gated = config.gated

    kind = replace(CORES["lstm"], build=Core, config=Switched())
    monkeypatch.setitem(CORES, "switched", kind)
    assert build_core("switched", 3).gated
    assert not build_core("switched", 3, gated=False).gated


def test_default_configs_are_not_shared_between_cores():
    build_core("rdn", 3, width=8, heads=2)
    assert build_core("rdn", 3).output_size == 128


def test_systematic_names_are_the_papers():
    """Irie et al. 2021: appendix D names these three, and Table 1 gives the parts of the others."""
    names = {name: kind.systematic_name for name, kind in CORES.items()}
    assert names["delta_rnn"] == "Feedforward/Delta fast RNN"
    assert names["rdn"] == "Recurrent/Delta fast Linear Net"
    assert names["delta_net"] == "Feedforward/Delta fast Linear Net"
    for name, kind in CORES.items():
        assert (" fast " in names[name] and "/" in names[name]) == kind.has_fast_weights
