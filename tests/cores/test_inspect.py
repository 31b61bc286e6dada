"""The vectors that a core's `inspect` shows are those with which it computes."""

import pytest
import torch

from fastweights.cores import CORES, build_core

INPUT, B, H, D = 5, 3, 2, 4
TINY = {"layers": 2, "width": H * D, "heads": H, "feedforward": 7}
MAPPED = [name for name, kind in CORES.items() if "feature_map" in kind.options()]


def used(name: str, **changes):
    """Return a core in float64, an input, and a state that is not fresh."""
    options = {key: value for key, value in TINY.items() if key in CORES[name].options()}
    core = build_core(name, INPUT, **(options | changes)).double()
    state = core.initial_state(B)
    for _ in range(4):
        _, state = core.step(torch.randn(B, INPUT, dtype=torch.float64), state)
    return core, torch.randn(B, INPUT, dtype=torch.float64), state


def layers(state) -> list:
    """Return a list of the states of all layers; it is empty for a core without memory."""
    return [] if not state else [state] if hasattr(state, "_fields") else list(state)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in CORES),
        ("lt", {"normaliser": "key_sum"}),
        ("rdn", {"convolution": 3}),
    ],
)
def test_the_state_shown_is_the_state_after_the_step(name, changes):
    core, x, state = used(name, **changes)
    _, after = core.step(x, state)
    shown = core.inspect(x, state)
    assert len(shown) == len(layers(after))
    for layer, part in zip(shown, layers(after), strict=True):
        for key, tensor in part._asdict().items():
            torch.testing.assert_close(layer[key], tensor, atol=0, rtol=0)
        assert all(tensor.shape[0] == B for tensor in layer.values())


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("feature_map", ["softmax", "elu_sum"])
def test_keys_and_queries_sum_to_one_and_strengths_lie_between(name, feature_map):
    core, x, state = used(name, feature_map=feature_map)
    for layer in core.inspect(x, state):
        weights = [tensor for key, tensor in layer.items() if key.endswith(("query", "key"))]
        assert len(weights) in (2, 4)
        for tensor in weights:
            torch.testing.assert_close(
                tensor.sum(-1), torch.ones_like(tensor.sum(-1)), atol=1e-4, rtol=0
            )
            assert (tensor >= 0).all()
        for key, tensor in layer.items():
            if key.endswith("strength"):
                largest = getattr(CORES[name].config, "max_write_strength", 1)
                assert ((tensor > 0) & (tensor <= largest)).all()


@pytest.mark.parametrize("name", ["delta_net", "rdn"])
def test_what_is_shown_explains_the_write(name):
    """W_t - W_(t-1) = k_t (beta_t (v_t - W_(t-1)^T k_t))^T holds for the shown vectors."""
    core, x, state = used(name)
    before = layers(state)[0].fast_weights
    shown = core.inspect(x, state)[0]
    answer = torch.einsum("bhkv,bhk->bhv", before, shown["key"])
    error = shown["strength"].unsqueeze(-1) * (shown["value"] - answer)
    write = torch.einsum("bhk,bhv->bhkv", shown["key"], error)
    torch.testing.assert_close(shown["fast_weights"] - before, write)


def test_what_is_shown_explains_the_sum_of_keys():
    core, x, state = used("lt", normaliser="key_sum")
    shown = core.inspect(x, state)[0]
    torch.testing.assert_close(shown["key_sum"], layers(state)[0].key_sum + shown["key"])


def test_what_is_shown_explains_the_cell():
    core, x, state = used("lstm")
    (shown,) = core.inspect(x, state)
    cell = shown["forget_gate"] * state.cell + shown["input_gate"] * shown["candidate"]
    torch.testing.assert_close(shown["cell"], cell)
    torch.testing.assert_close(shown["hidden"], shown["output_gate"] * cell.tanh())


def test_attention_shown_is_over_the_episodes_steps_and_sums_to_one():
    core, x, state = used("transformer", window=8)
    (shown,) = core.inspect(x, state)
    assert shown["attention"].shape == (B, 2, H, 8)
    assert (shown["attention"][..., :3] == 0).all() and (shown["attention"][..., 3:] > 0).all()
    sums = shown["attention"].sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
