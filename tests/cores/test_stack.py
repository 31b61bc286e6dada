"""The layers around the memories: positions, norms, highways, feedforward layers."""

import numpy as np
import pytest
import torch
from test_equations import B, T, sigmoid
from torch import nn

from fastweights.cores import build_core


@pytest.mark.parametrize("width", [6, 7])
def test_positions_are_waves_from_the_episodes_start(width):
    core = build_core("transformer", 5, layers=1, width=width, heads=1, embed="linear").double()
    plain = build_core("transformer", 5, layers=1, width=width, heads=1, positions="none").double()
    plain.load_state_dict(core.state_dict())
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[3, 1] = True
    x = torch.randn(T, B, 5, dtype=torch.float64)
    y, _ = core.unroll(x, core.initial_state(B), is_first)
    half, waves = (width + 1) // 2, torch.zeros(T, B, width, dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            position = t - 3 if b == 1 and t >= 3 else t
            angles = [position / 10_000 ** (i / half) for i in range(half)]
            wave = [*np.sin(angles), *np.cos(angles)][:width]
            waves[t, b] = torch.tensor(wave)
    plain.embed, plain.input_size = nn.Identity(), width
    expected, _ = plain.unroll(core.embed(x) + waves, plain.initial_state(B), is_first)
    torch.testing.assert_close(y, expected, atol=1e-10, rtol=0)


def test_post_norm_normalises_after_each_branch():
    core = build_core("transformer", 5, layers=1, width=8, heads=2, feedforward=7, norm="post")
    core, x = core.double(), torch.randn(T, B, 5, dtype=torch.float64)
    is_first = torch.zeros(T, B, dtype=torch.bool)
    y, _ = core.unroll(x, core.initial_state(B), is_first)
    block, w = core.stack.blocks[0], core.stack.blocks[0].state_dict()
    placed = core._placed(x, torch.arange(T, dtype=torch.float64)[:, None].expand(T, B))
    remembered, _ = block.memory.unroll(placed, block.memory.initial_state(B), is_first)
    middle = nn.functional.layer_norm(placed + remembered @ w["project.weight"].T, (8,))
    hidden = (middle @ w["feedforward.1.weight"].T + w["feedforward.1.bias"]).clamp(min=0)
    added = middle + hidden @ w["feedforward.3.weight"].T + w["feedforward.3.bias"]
    expected = nn.functional.layer_norm(added, (8,))
    torch.testing.assert_close(y, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("norm", ["pre", "legacy_pre", "legacy_raw"])
@pytest.mark.parametrize(("output_scale", "factor"), [("one", 1.0), ("head_size", 0.5)])
def test_what_a_memory_reads_what_it_is_added_to_and_by_how_much(norm, output_scale, factor):
    """legacy_* add the memory to the normalised input; head_size scales it by 1 / sqrt(4)."""
    sizes = {"layers": 1, "width": 8, "heads": 2, "feedforward": 7, "embed": "none"}
    core = build_core("rdn", 8, **sizes, norm=norm, output_scale=output_scale).double()
    block, x = core.blocks[0], torch.randn(T, B, 8, dtype=torch.float64)
    y, _ = core(x)
    normalised = block.memory_norm(x)
    remembered, _ = block.memory(x if norm == "legacy_raw" else normalised)
    middle = (x if norm == "pre" else normalised) + factor * block.project(remembered)
    torch.testing.assert_close(y, middle + block.feedforward(middle), atol=1e-12, rtol=0)


def test_a_highway_gates_its_candidate_and_a_map_of_its_input():
    core, x = build_core("feedforward_gated", 5, width=6).double(), torch.randn(T, B, 5).double()
    y, _ = core.unroll(x, core.initial_state(B), torch.zeros(T, B, dtype=torch.bool))
    w, b = (p.detach().numpy() for p in core.maps.parameters())
    for t in range(T):
        for n in range(B):
            parts = w @ x[t, n].numpy() + b
            i, f = sigmoid(parts[:6]), sigmoid(parts[6:12])
            expected = torch.from_numpy(f * parts[18:] + i * np.tanh(parts[12:18]))
            torch.testing.assert_close(y[t, n], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("norm", ["pre", "post", "legacy_pre", "legacy_raw"])
def test_dropout_is_on_both_branches_and_on_the_hidden_units(norm):
    """If it drops everything, a block adds nothing, and hidden units leave the output's bias."""
    sizes = {"layers": 1, "width": 8, "heads": 2, "feedforward": 7, "embed": "none"}
    core = build_core("delta_net", 8, **sizes, norm=norm, dropout=1.0).double()
    block, x = core.blocks[0], torch.randn(T, B, 8, dtype=torch.float64)
    once = nn.functional.layer_norm(x, (8,))
    expected = {"pre": x, "post": nn.functional.layer_norm(once, (8,))}
    expected |= dict.fromkeys(("legacy_pre", "legacy_raw"), once)
    torch.testing.assert_close(core(x)[0], expected[norm], atol=1e-12, rtol=0)
    assert torch.equal(block.feedforward(x), block.feedforward[3].bias.expand(T, B, 8))
    assert not torch.equal(core.eval()(x)[0], expected[norm])


def test_a_stack_adds_memory_and_feedforward_to_what_it_is_given():
    core = build_core("delta_net", 5, layers=2, width=8, heads=2, feedforward=7).double()
    x, is_first = torch.randn(T, B, 5, dtype=torch.float64), torch.zeros(T, B, dtype=torch.bool)
    y, _ = core.unroll(x, core.initial_state(B), is_first)
    w = core.state_dict()
    expected = x @ w["embed.weight"].T + w["embed.bias"]
    for i, block in enumerate(core.blocks):
        normal = nn.functional.layer_norm(expected, (8,))
        remembered, _ = block.memory.unroll(normal, block.memory.initial_state(B), is_first)
        expected = expected + remembered @ w[f"blocks.{i}.project.weight"].T
        normal, layer = nn.functional.layer_norm(expected, (8,)), f"blocks.{i}.feedforward."
        hidden = (normal @ w[layer + "1.weight"].T + w[layer + "1.bias"]).clamp(min=0)
        expected = expected + hidden @ w[layer + "3.weight"].T + w[layer + "3.bias"]
    torch.testing.assert_close(y, expected, atol=1e-10, rtol=0)


def test_a_short_convolution_adds_the_last_inputs_of_the_episode():
    core = build_core("rdn", 5, layers=1, width=8, heads=2, feedforward=7, convolution=3).double()
    plain = build_core("rdn", 5, layers=1, width=8, heads=2, feedforward=7).double()
    unknown = plain.load_state_dict(core.state_dict(), strict=False).unexpected_keys
    assert unknown == ["convolution.weight"]
    x, w = torch.randn(T, B, 5, dtype=torch.float64), core.convolution.weight
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[3, 1] = True
    rows = core.embed(x)
    convolved = rows.clone()
    for t in range(T):
        for b in range(B):
            begin = 3 if b == 1 and t >= 3 else 0
            for back in range(min(2, t - begin) + 1):
                convolved[t, b] += w[2 - back] * rows[t - back, b]
    plain.embed, plain.input_size = nn.Identity(), 8
    expected, _ = plain.unroll(convolved, plain.initial_state(B), is_first)
    y, _ = core.unroll(x, core.initial_state(B), is_first)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)
