"""The references against their equations, written again with einsum, in float64."""

import pytest
import torch
from kernel_cases import all_resets, example
from torch import einsum

from fastweights import kernels
from fastweights.kernels.linear_attention import NormalisedState, normalised_linear_attention


@pytest.fixture(autouse=True)
def _reference():
    with kernels.backend("reference"):
        yield


def columns(case):
    """Yield each batch column and head as a separate sequence with its resets."""
    signature = case.operation.signature
    for b in range(5):
        for h in range(2):
            call = {}
            for argument, tensor in zip(signature.arguments, case.tensors, strict=True):
                index = tuple({"B": b, "H": h}.get(axis, slice(None)) for axis in argument.axes)
                call[argument.name.split(".")[-1]] = tensor[index]
            yield b, h, call


def delta(W, k, v, beta):
    return W + beta * einsum("k,v->kv", k, v - einsum("kv,k->v", W, k))


def check(name, equations, **options):
    case = example(name, 3, **({} if name == "self_referential" else {"values": 4}), **options)
    y = case.run()[0]
    for b, h, call in columns(case):
        torch.testing.assert_close(y[:, b, h], equations(call), rtol=1e-12, atol=1e-12)


def loop(call, first_state, step):
    """Compute a plain loop with a fresh state at each reset."""
    state, outputs = first_state(call), []
    for t in range(7):
        if call["is_first"][t]:
            state = tuple(torch.zeros_like(s) for s in state)
        y, state = step(t, *state)
        outputs.append(y)
    return torch.stack(outputs)


def test_linear_attention():
    def equations(c):
        def step(t, W):
            W = W + einsum("k,v->kv", c["k"][t], c["v"][t])
            return einsum("kv,k->v", W, c["q"][t]), (W,)

        return loop(c, lambda c: (c["fast_weights"],), step)

    check("linear_attention", equations)


def test_gated_linear_attention():
    def equations(c):
        def step(t, W):
            W = c["log_decay"][t].exp() * W + einsum("k,v->kv", c["k"][t], c["v"][t])
            return einsum("kv,k->v", W, c["q"][t]), (W,)

        return loop(c, lambda c: (c["fast_weights"],), step)

    check("gated_linear_attention", equations)


def test_gated_delta_rule():
    def equations(c):
        def step(t, W):
            W = delta(c["log_decay"][t].exp() * W, c["k"][t], c["v"][t], c["beta"][t])
            return einsum("kv,k->v", W, c["q"][t]), (W,)

        return loop(c, lambda c: (c["fast_weights"],), step)

    check("gated_delta_rule", equations)


def test_delta_rule():
    def equations(c):
        def step(t, W):
            W = delta(W, c["k"][t], c["v"][t], c["beta"][t])
            return einsum("kv,k->v", W, c["q"][t]), (W,)

        return loop(c, lambda c: (c["fast_weights"],), step)

    check("delta_rule", equations)


def test_recurrent_delta_rule():
    def equations(c):
        def step(t, W, y):
            h = torch.tanh(y)
            q = torch.softmax(c["q"][t] + einsum("v,vk->k", h, c["query"]), 0)
            k = torch.softmax(c["k"][t] + einsum("v,vk->k", h, c["key"]), 0)
            v = c["v"][t] + einsum("v,vw->w", h, c["value"])
            W = delta(W, k, v, torch.sigmoid(c["beta"][t] + h @ c["strength"]))
            y = einsum("kv,k->v", W, q)
            return y, (W, y)

        return loop(c, lambda c: (c["fast_weights"], c["output"]), step)

    check("recurrent_delta_rule", equations)


@pytest.mark.parametrize("version", ["A", "B"])
def test_delta_rnn(version):
    def equations(c):
        def step(t, W, R, y):
            W = delta(W, c["k"][t], c["v"][t], c["beta"][t])
            R = delta(R, c["recurrent_k"][t], c["recurrent_v"][t], c["recurrent_beta"][t])
            asked = torch.softmax(y, 0) if version == "B" else y
            y = einsum("kv,k->v", W, c["q"][t]) + einsum("kv,k->v", R, asked)
            y = y if version == "B" else torch.softmax(y, 0)
            return y, (W, R, y)

        first = ("fast_weights", "recurrent_fast_weights", "output")
        return loop(c, lambda c: tuple(c[name] for name in first), step)

    check("delta_rnn", equations, version=version)


@pytest.mark.parametrize("version", ["A", "B", "C", "D"])
def test_delta_lstm(version):
    def equations(c):
        def step(t, W, R, cell, y):
            asked = y if version == "A" else torch.softmax(y, 0)
            W, R, z, sums = W.clone(), R.clone(), [], []
            for g in range(3):
                W[g] = delta(W[g], c["k"][t, g], c["v"][t, g], c["beta"][t, g])
                recurrent = c["recurrent_k"][t, g], c["recurrent_v"][t, g]
                R[g] = delta(R[g], *recurrent, c["recurrent_beta"][t, g])
                z.append(einsum("kv,k->v", W[g], c["q"][t, g]))
                sums.append(z[g] + einsum("kv,k->v", R[g], asked))
            u = sums[0] if version == "D" else torch.sigmoid(sums[0])
            f, o = torch.sigmoid(sums[1]), torch.sigmoid(sums[2])
            cell = f * cell + (1 - f) * u
            y = cell * o
            if version == "A":
                y = torch.softmax(y, 0)
            if version == "C":
                y = y + z[0]
            return y, (W, R, cell, y)

        first = ("fast_weights", "recurrent_fast_weights", "cell", "output")
        return loop(c, lambda c: tuple(c[name] for name in first), step)

    check("delta_lstm", equations, version=version)


def test_self_referential():
    def equations(c):
        def step(t, shift):
            W = c["initial_weights"] + shift
            y, q, k, b = einsum("dn,d->n", W, c["x"][t]).split([3, 3, 3, 4])
            q, k = torch.softmax(q, 0), torch.softmax(k, 0)
            strength = torch.sigmoid(b).repeat_interleave(torch.tensor([3, 3, 3, 4]))
            change = einsum("dn,d->n", W, q) - einsum("dn,d->n", W, k)
            return y, (shift + einsum("d,n->dn", k, strength * change),)

        return loop(c, lambda c: (c["shift"],), step)

    check("self_referential", equations)


def test_lstm_is_pytorchs():
    """Compare without resets and from a zero state."""
    case = example("lstm", 6)
    module = torch.nn.LSTM(4, 6, dtype=torch.float64)
    x, mask = torch.randn(7, 5, 4, dtype=torch.float64), torch.zeros(7, 5, dtype=torch.bool)
    z = x @ module.weight_ih_l0.t() + module.bias_ih_l0 + module.bias_hh_l0
    zero = torch.zeros(5, 6, dtype=torch.float64)
    state = case.operation.signature.make_state([zero, zero])
    y, final = case.operation(z, mask, state, module.weight_hh_l0)
    expected, (hidden, cell) = module(x)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(final.hidden, hidden[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(final.cell, cell[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "chunked", "cpu"])
def test_the_normaliser_divides_by_the_sum_of_weights(backend):
    q, k = (torch.rand(7, 5, 2, 3, dtype=torch.float64) for _ in range(2))
    v = torch.randn(7, 5, 2, 4, dtype=torch.float64)
    W, z = torch.rand(5, 2, 3, 4, dtype=torch.float64), torch.rand(5, 2, 3, dtype=torch.float64)
    mask = all_resets()
    with kernels.backend(backend):
        y, final = normalised_linear_attention(q, k, v, mask, NormalisedState(W, z))
    for t in range(7):
        W = torch.where(mask[t, :, None, None, None], 0, W) + einsum("bhk,bhv->bhkv", k[t], v[t])
        z = torch.where(mask[t, :, None, None], 0, z) + k[t]
        total = einsum("bhk,bhk->bh", z, q[t])[..., None] + 1e-6
        torch.testing.assert_close(y[t], einsum("bhkv,bhk->bhv", W, q[t]) / total)
    torch.testing.assert_close(final.key_sum, z)
    torch.testing.assert_close(final.fast_weights, W)
