"""The baseline cores against their equations, written for one stream, or PyTorch's modules."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fastweights.cores import build_core
from fastweights.kernels import segments

T, B, INPUT, WIDTH = 9, 3, 5, 6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def resets() -> torch.Tensor:
    """Return no reset in column 0, one amid column 1, and rows 0, 4 and 5 in column 2."""
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[4, 1] = is_first[0, 2] = is_first[4, 2] = is_first[5, 2] = True
    return is_first


def episodes(x: torch.Tensor, is_first: torch.Tensor):
    """Yield (column, rows, values) for every stretch between two resets."""
    for b in range(B):
        cuts = [0, *(t for t in range(1, T) if is_first[t, b]), T]
        for start, stop in pairwise(cuts):
            yield b, slice(start, stop), x[start:stop, b].numpy()


def parameters(core) -> dict[str, np.ndarray]:
    return {name: weight.detach().numpy() for name, weight in core.named_parameters()}


def assert_is(equations, core) -> None:
    """Check that the unroll, with resets, equals `equations(parameters, rows of an episode)`."""
    x, is_first = torch.randn(T, B, INPUT, dtype=torch.float64), resets()
    y, _ = core.unroll(x, core.initial_state(B), is_first)
    for b, rows, episode in episodes(x, is_first):
        expected = torch.from_numpy(np.stack(equations(parameters(core), episode)))
        torch.testing.assert_close(y[rows, b], expected, atol=1e-12, rtol=0)


def test_e_lstm():
    """Irie et al. 2023, eqs. 17-21, with biases."""

    def equations(p, x):
        c, w = np.zeros(WIDTH), p["from_input.weight"]
        bias_z, bias_f = np.split(p["from_input.bias"], 2)
        Z, F = np.split(w, 2)
        for x_t in x:
            f = sigmoid(F @ x_t + bias_f + p["forget_weights"] * c)
            z = np.tanh(Z @ x_t + bias_z + p["candidate_weights"] * c)
            c = f * c + (1 - f) * z
            gate = p["output_gate.weight"] @ np.concatenate([x_t, c]) + p["output_gate.bias"]
            yield sigmoid(gate) * c

    assert_is(lambda p, x: list(equations(p, x)), build_core("e_lstm", INPUT, width=WIDTH).double())


def taps(x, size):
    """Return each row behind the `size - 1` rows before it (zeros at the start), oldest first."""
    padded = np.concatenate([np.zeros((size - 1, x.shape[1])), x])
    return [padded[t : t + size].reshape(-1) for t in range(len(x))]


def pooled(p, layer, x, size, pooling):
    """Compute Bradbury et al. 2017, eqs. 3-5."""
    c, outputs = np.zeros(WIDTH), []
    for row in taps(x, size):
        convolved = p[f"layers.{layer}.convolution.weight"] @ row
        convolved = convolved + p[f"layers.{layer}.convolution.bias"]
        z, f, o, *i = np.split(convolved, len(convolved) // WIDTH)
        f = sigmoid(f)
        c = f * c + (sigmoid(i[0]) if pooling == "ifo" else 1 - f) * np.tanh(z)
        outputs.append(sigmoid(o) * c)
    return np.stack(outputs)


@pytest.mark.parametrize("pooling", ["fo", "ifo"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_qrnn(window, layers, pooling):
    def equations(p, x):
        for layer in range(layers):
            x = pooled(p, layer, x, window, pooling)
        return x

    options = {"window": window, "layers": layers, "pooling": pooling}
    assert_is(equations, build_core("qrnn", INPUT, width=WIDTH, **options).double())


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("window", [1, 3, 20])
def test_cnn(window, layers):
    def equations(p, x):
        for layer in range(layers):
            W, b = (p[f"layers.{layer}.convolution.{name}"] for name in ("weight", "bias"))
            x = np.stack([np.maximum(W @ row + b, 0) for row in taps(x, window)])
        return x

    options = {"window": window, "layers": layers}
    assert_is(equations, build_core("cnn", INPUT, width=WIDTH, **options).double())


@pytest.mark.parametrize(("stacks", "depth"), [(1, 3), (2, 5), (1, 1)])
def test_stack_rnn(stacks, depth):
    """Joulin & Mikolov 2015, eqs. 3-6, for each stack separately."""
    size = 2

    def equations(p, x):
        h, S, outputs = np.zeros(WIDTH), np.zeros((stacks, depth, size)), []
        for x_t in x:
            heard = np.concatenate([x_t, S[:, 0].reshape(-1)])
            h = np.tanh(
                p["cell.weight_ih"] @ heard
                + p["cell.bias_ih"]
                + p["cell.weight_hh"] @ h
                + p["cell.bias_hh"]
            )
            outputs.append(h)
            actions = (p["actions.weight"] @ h + p["actions.bias"]).reshape(stacks, 3)
            values = (p["values.weight"] @ h + p["values.bias"]).reshape(stacks, size)
            after = np.zeros_like(S)
            for n in range(stacks):
                push, keep, pop = np.exp(actions[n]) / np.exp(actions[n]).sum()
                for i in range(depth):
                    above = values[n] if i == 0 else S[n, i - 1]
                    below = S[n, i + 1] if i + 1 < depth else 0
                    after[n, i] = push * above + keep * S[n, i] + pop * below
            S = after
        return outputs

    options = {"stacks": stacks, "stack_depth": depth, "stack_width": size}
    assert_is(equations, build_core("stack_rnn", INPUT, width=WIDTH, **options).double())


def test_a_stack_gives_back_in_reverse_what_was_pushed():
    """With deterministic actions: three pushes, then three pops."""
    core = build_core("stack_rnn", INPUT, width=WIDTH, stack_width=2, stack_depth=4).double()
    hidden = torch.randn(3, 1, WIDTH, dtype=torch.float64)
    stacks = core.initial_state(1).stacks
    with torch.no_grad():
        core.actions.weight.zero_()
        core.actions.bias.copy_(torch.tensor([50.0, 0, 0]))
        for h in hidden:
            stacks = core._moved(stacks, h)
        core.actions.bias.copy_(torch.tensor([0, 0, 50.0]))
        for h in hidden.flip(0):
            torch.testing.assert_close(stacks[:, 0, 0], core.values(h))
            stacks = core._moved(stacks, h)
    assert stacks.abs().max() < 1e-12


@pytest.mark.parametrize(("name", "module"), [("gru", nn.GRU), ("elman", nn.RNN)])
def test_pytorchs_networks_are_pytorchs(name, module):
    core, network = build_core(name, INPUT, width=WIDTH).double(), module(INPUT, WIDTH).double()
    network.load_state_dict({f"{n}_l0": w for n, w in core.cell.state_dict().items()})
    x, is_first = torch.randn(T, B, INPUT, dtype=torch.float64), resets()
    y, state = core.unroll(x, core.initial_state(B), is_first)
    for b, rows, _ in episodes(x, is_first):
        expected, hidden = network(x[rows, b])
        torch.testing.assert_close(y[rows, b], expected, atol=1e-12, rtol=0)
        if rows.stop == T:
            torch.testing.assert_close(state.hidden[b], hidden[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["gru", "elman"])
def test_one_call_of_pytorchs_kernel_for_each_stretch(name, monkeypatch):
    kernel = {"gru": "gru", "elman": "rnn_tanh"}[name]
    core, called, original = build_core(name, INPUT, width=WIDTH), [], getattr(torch, kernel)
    monkeypatch.setattr(torch, kernel, lambda *call: called.append(1) or original(*call))
    x = torch.randn(T, B, INPUT)
    core.unroll(x, core.initial_state(B), torch.zeros(T, B, dtype=torch.bool))
    assert len(called) == 1
    core.unroll(x, core.initial_state(B), resets())
    assert len(called) == 1 + 3  # stretches begin at rows 0, 4 and 5


@pytest.mark.parametrize("name", ["gru", "elman"])
def test_pieces_in_one_call_as_on_gpus_equal_stretches(name, monkeypatch):
    core = build_core(name, INPUT, width=WIDTH).double()
    x, is_first = torch.randn(T, B, INPUT).double(), resets()
    by_stretches = with_gradients(core, x, is_first)
    monkeypatch.setattr(segments, "unroll_by_stretches", segments.unroll_by_pieces)
    for one, other in zip(with_gradients(core, x, is_first), by_stretches, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gru", "elman", "e_lstm", "qrnn", "cnn", "stack_rnn"])
@pytest.mark.parametrize("batch", [0, B])
def test_an_empty_unroll_keeps_the_state(name, batch):
    core = build_core(name, INPUT, width=WIDTH)
    x = torch.randn(4, batch, INPUT)
    _, state = core(x)
    y, after = core(x[:0], state)
    assert y.shape == (0, batch, WIDTH)
    before, after = (part if type(part) is tuple else (part,) for part in (state, after))
    for one, other in zip(before, after, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("name", ["gru", "elman", "e_lstm", "qrnn", "cnn", "stack_rnn"])
def test_float32_at_the_usual_size_is_float64(name):
    core = build_core(name, 32, width=64)
    x, is_first = torch.randn(60, 4, 32), torch.rand(60, 4) < 0.05
    found = with_gradients(core, x, is_first)
    for mine, right in zip(found, with_gradients(core.double(), x.double(), is_first), strict=True):
        scale = right.abs().max().clamp_min(1).item()
        torch.testing.assert_close(mine.double(), right, atol=1e-5 * scale, rtol=0)


def with_gradients(core, x: torch.Tensor, is_first: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    y, _ = core.unroll(x, core.initial_state(x.shape[1]), is_first)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y).to(y)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x, *core.parameters()])]
