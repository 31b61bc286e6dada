"""Each memory against its paper's equations, written as loops over streams, heads and rows.

W is [values, keys] here, as in the papers: y = W q, and k v^T is written v k^T.
"""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from fastweights.cores import build_core
from fastweights.cores.attention import Attention
from fastweights.cores.delta_delta import DeltaDelta
from fastweights.cores.delta_lstm import DeltaLSTM
from fastweights.cores.delta_mlp import DeltaMLP
from fastweights.cores.delta_net import DeltaNet
from fastweights.cores.delta_product import DeltaProduct, GatedDeltaProduct
from fastweights.cores.delta_rnn import DeltaRNN
from fastweights.cores.gated_delta_net import GatedDeltaNet
from fastweights.cores.linear_transformer import LinearTransformer
from fastweights.cores.matrix_lstm import MatrixLSTM
from fastweights.cores.recurrent_delta_net import RecurrentDeltaNet
from fastweights.cores.self_referential import SelfReferential

T, B, H, D = 7, 3, 2, 4


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def elu_sum(x):
    positive = np.where(x > 0, x, np.exp(x) - 1) + 1
    return positive / (positive.sum() + 1e-5)


def elu(x):
    return np.where(x > 0, x + 1, np.exp(x))


def unit(x):
    return x / np.sqrt(x @ x + 1e-6)


PHI = {"softmax": softmax, "elu_sum": elu_sum}  # maps of all keys, and of the recurrent ones
LENGTH_ONE = {"unit": unit, "silu_unit": lambda x: unit(x * sigmoid(x))}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def sigma(memory, x):
    return {"sigmoid": 1, "double_sigmoid": 2}[memory.strength_map] * sigmoid(x)


def softplus(x):
    return np.log1p(np.exp(x))


def programs(memory, x, sizes):
    """Return the slow net's vectors for each head; head h owns consecutive rows of its weight."""
    rows = memory.slow_net.project.weight.detach().numpy().reshape(H, sum(sizes), H * D)
    cuts = np.cumsum(sizes)[:-1]
    return [np.split(rows[h] @ x, cuts) for h in range(H)]


def linear_transformer(memory, phi, x):
    W, y = np.zeros((H, D, D)), np.zeros((T, H, D))
    for t in range(T):
        for h, (q, k, v) in enumerate(programs(memory, x[t], [D, D, D])):
            W[h] = W[h] + np.outer(v, phi(k))  # Irie et al. 2021, eq. 6
            y[t, h] = W[h] @ phi(q)  # eq. 7
    return y


def delta(W, k, v, beta):
    return W + beta * np.outer(v - W @ k, k)  # eqs. 8 and 10


def delta_net(memory, phi, x):
    W, y = np.zeros((H, D, D)), np.zeros((T, H, D))
    for t in range(T):
        for h, (q, k, v, beta) in enumerate(programs(memory, x[t], [D, D, D, 1])):
            W[h] = delta(W[h], phi(k), v, sigma(memory, beta))  # eq. 9
            y[t, h] = W[h] @ phi(q)
    return y


def gated_delta_net(memory, phi, x):
    rate, bias = memory.log_rate.exp().tolist(), memory.decay_bias.tolist()
    W, y = np.zeros((H, D, D)), np.zeros((T, H, D))
    for t in range(T):
        for h, (q, k, v, beta, fading) in enumerate(programs(memory, x[t], [D, D, D, 1, 1])):
            k, beta, decay = (
                phi(k),
                sigma(memory, beta),
                np.exp(-rate[h] * softplus(fading + bias[h])),
            )
            W[h] = decay * W[h] @ (np.eye(D) - beta * np.outer(k, k)) + beta * np.outer(v, k)
            y[t, h] = W[h] @ phi(q)
    return y


def delta_product(memory, phi, x, steps, gated=False):
    """Siems et al. 2025: multiply W by S matrices I - beta k k^T and add what each step writes."""
    S = int(steps)
    W, y = np.zeros((H, D, D)), np.zeros((T, H, D))
    for t in range(T):
        parts = programs(memory, x[t], [D, S * D, S * D, S, *[1] * gated])
        for h, (q, k, v, beta, *fading) in enumerate(parts):
            if gated:
                rate, bias = (p[h].item() for p in (memory.log_rate.exp(), memory.decay_bias))
                W[h] = np.exp(-rate * softplus(fading[0] + bias)) * W[h]
            for key, value, b in zip(
                k.reshape(S, D), v.reshape(S, D), sigma(memory, beta), strict=True
            ):
                key = phi(key)
                W[h] = W[h] @ (np.eye(D) - b * np.outer(key, key)) + b * np.outer(value, key)
            y[t, h] = W[h] @ phi(q)
    return y


def gated_delta_product(memory, phi, x, steps):
    return delta_product(memory, phi, x, steps, gated=True)


def delta_mlp(memory, phi, x):
    """Version B has one pair of fast layers; version A has two, one after the other."""
    pairs, hidden = memory.pairs, 4 * D
    up, down = np.zeros((H, pairs, hidden, D)), np.zeros((H, pairs, D, hidden))
    y = np.zeros((T, H, D))
    for t in range(T):
        parts = programs(memory, x[t], [D, *[D, hidden, 1, hidden, D, 1] * pairs])
        for h, (q, *vectors) in enumerate(parts):
            asked = phi(q)
            for p in range(pairs):
                k, v, beta, hidden_k, hidden_v, hidden_beta = vectors[6 * p : 6 * p + 6]
                up[h, p] = delta(up[h, p], phi(k), v, sigma(memory, beta))
                down[h, p] = delta(down[h, p], phi(hidden_k), hidden_v, sigma(memory, hidden_beta))
                y[t, h] = down[h, p] @ softmax(up[h, p] @ asked)  # eq. 13
                asked = softmax(y[t, h])
    return y


def delta_delta(memory, phi, x):
    S, W, y = np.zeros((H, 3 * D + 1, D)), np.zeros((H, D, D)), np.zeros((T, H, D))
    for t in range(T):
        for h, (q, k, v, beta) in enumerate(programs(memory, x[t], [D, D, 3 * D + 1, 1])):
            S[h] = delta(S[h], phi(k), v, sigma(memory, beta))
            q, k, v, beta = np.split(S[h] @ phi(q), [D, 2 * D, 3 * D])
            W[h] = delta(W[h], phi(k), v, sigma(memory, beta))
            y[t, h] = W[h] @ phi(q)
    return y


def recurrent_delta_net(memory, phi, x):
    names = ("query", "key", "value", "strength")
    R = [getattr(memory, f"recurrent_{name}").detach().numpy() for name in names]
    W, y, before = np.zeros((H, D, D)), np.zeros((T, H, D)), np.zeros((H, D))
    for t in range(T):
        for h, (q, k, v, beta) in enumerate(programs(memory, x[t], [D, D, D, 1])):
            R_q, R_k, R_v, r_beta = (matrix[h].T for matrix in R)
            g = np.tanh(before[h])
            q, k, v = q + R_q @ g, k + R_k @ g, v + R_v @ g  # eqs. 15-17
            W[h] = delta(W[h], phi(k), v, sigma(memory, beta + r_beta @ g))  # eq. 18
            y[t, h] = before[h] = W[h] @ phi(q)
    return y


def delta_rnn(memory, phi, x, recurrent_phi):
    W, R = np.zeros((H, D, D)), np.zeros((H, D, D))
    y, before = np.zeros((T, H, D)), np.zeros((H, D))
    for t in range(T):
        parts = programs(memory, x[t], [D, D, D, 1, D, D, 1])
        for h, (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta) in enumerate(parts):
            W[h] = delta(W[h], phi(k), v, sigma(memory, beta))
            written = recurrent_phi(recurrent_k), recurrent_v, sigma(memory, recurrent_beta)
            R[h] = delta(R[h], *written)
            if memory.version == "B":
                y[t, h] = W[h] @ phi(q) + R[h] @ softmax(before[h])  # eq. 12
            else:
                y[t, h] = softmax(W[h] @ phi(q) + R[h] @ before[h])  # eq. 19
            before[h] = y[t, h]
    return y


def delta_lstm(memory, phi, x, recurrent_phi):
    """Eqs. 20-40; arrays of three hold the main gate, forget gate and output gate."""
    asks = {"A": lambda y: y}.get(memory.version, softmax)
    main_gate = {"D": lambda u: u}.get(memory.version, sigmoid)
    W, R = np.zeros((H, 3, D, D)), np.zeros((H, 3, D, D))
    c, y, before = np.zeros((H, D)), np.zeros((T, H, D)), np.zeros((H, D))
    for t in range(T):
        parts = programs(memory, x[t], [3 * D, 3 * D, 3 * D, 3, 3 * D, 3 * D, 3])
        for h, vectors in enumerate(parts):
            q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta = (
                vector.reshape(3, -1) for vector in vectors
            )
            gates, z = [], []
            for g in range(3):
                W[h, g] = delta(W[h, g], phi(k[g]), v[g], sigma(memory, beta[g]))
                written = (
                    recurrent_phi(recurrent_k[g]),
                    recurrent_v[g],
                    sigma(memory, recurrent_beta[g]),
                )
                R[h, g] = delta(R[h, g], *written)
                z.append(W[h, g] @ phi(q[g]))
                gates.append(z[g] + R[h, g] @ asks(before[h]))
            main, forget, output = main_gate(gates[0]), sigmoid(gates[1]), sigmoid(gates[2])
            c[h] = forget * c[h] + (1 - forget) * main
            y[t, h] = output * c[h]
            if memory.version == "A":
                y[t, h] = softmax(y[t, h])
            if memory.version == "C":
                y[t, h] += z[0]
            before[h] = y[t, h]
    return y


def self_referential(memory, phi, x, input_map=lambda x: x):
    W = memory.initial_weights.detach().numpy().transpose(0, 2, 1).copy()  # [H, 3D + 4, D]
    blocks = [slice(0, D), slice(D, 2 * D), slice(2 * D, 3 * D), slice(3 * D, 3 * D + 4)]
    y = np.zeros((T, H, D))
    for t in range(T):
        for h in range(H):
            seen = input_map(x[t].reshape(H, D)[h])
            y[t, h], q, k, beta = (W[h][rows] @ seen for rows in blocks)
            v_bar, v = W[h] @ phi(k), W[h] @ phi(q)  # Irie et al. 2022, eqs. 6 and 7
            for share, rows in zip(sigma(memory, beta), blocks, strict=True):
                W[h][rows] += share * np.outer((v - v_bar)[rows], phi(k))  # eq. 8
    return y


LAWS = {
    LinearTransformer: linear_transformer,
    DeltaNet: delta_net,
    GatedDeltaNet: gated_delta_net,
    DeltaProduct: delta_product,
    GatedDeltaProduct: gated_delta_product,
    DeltaMLP: delta_mlp,
    DeltaDelta: delta_delta,
    RecurrentDeltaNet: recurrent_delta_net,
    DeltaRNN: delta_rnn,
    DeltaLSTM: delta_lstm,
    SelfReferential: self_referential,
}


@pytest.mark.parametrize("name", ["elu", "elu_sum"])
def test_the_linear_transformers_keys_are_there_normalised_and_not(name):
    memory = LinearTransformer(H * D, H, name).double()
    x = 2 * torch.randn(T, B, H * D, dtype=torch.float64)
    y, _ = memory.unroll(x, memory.initial_state(B), torch.zeros(T, B, dtype=torch.bool))
    phi = {"elu": elu, "elu_sum": elu_sum}[name]
    expected = linear_transformer(memory, phi, x[:, 0].numpy()).reshape(T, H * D)
    torch.testing.assert_close(y[:, 0], torch.from_numpy(expected), atol=1e-10, rtol=0)


OPTIONS = {  # versions, feature maps of the recurrent keys, maps of the input
    SelfReferential: product(("softmax", "identity")),
    DeltaMLP: product("AB"),
    DeltaProduct: [(1,), (3,)],
    GatedDeltaProduct: [(2,)],
    DeltaRNN: product("AB", PHI),
    DeltaLSTM: product("ABCD", PHI),
}
EVERY = [(kind, *options) for kind in LAWS for options in OPTIONS.get(kind, [()])]


KEYS = [(name, 1) for name in PHI] + [(name, 2) for name in ("softmax", *LENGTH_ONE)]


@pytest.mark.parametrize(("feature_map", "largest"), KEYS)
@pytest.mark.parametrize("every", EVERY, ids=lambda e: "-".join([e[0].__name__, *map(str, e[1:])]))
def test_memory_is_the_papers_equations(every, feature_map, largest):
    kind, *options = every
    strengths = [] if kind is LinearTransformer else [largest]
    memory = kind(H * D, H, feature_map, *strengths, *options).double()
    phi = (PHI | LENGTH_ONE)[feature_map]
    maps = [PHI.get(given, given) for given in options if given in PHI or type(given) is int]
    x = 2 * torch.randn(T, B, H * D, dtype=torch.float64)
    y, _ = memory.unroll(x, memory.initial_state(B), torch.zeros(T, B, dtype=torch.bool))
    for b in range(B):
        expected = LAWS[kind](memory, phi, x[:, b].numpy(), *maps)
        expected = expected.reshape(T, H * D)
        torch.testing.assert_close(y[:, b], torch.from_numpy(expected), atol=1e-10, rtol=0)


def test_lstm_is_torchs():
    core, reference = build_core("lstm", 5, width=6).double(), nn.LSTM(5, 6).double()
    weights = {f"{name}_l0": w for name, w in core.cell.state_dict().items()}
    reference.load_state_dict(weights)
    x, is_first = torch.randn(T, B, 5, dtype=torch.float64), torch.zeros(T, B, dtype=torch.bool)
    y, state = core.unroll(x, core.initial_state(B), is_first)
    expected, (hidden, cell) = reference(x)
    torch.testing.assert_close(y, expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(state.hidden, hidden[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(state.cell, cell[0], atol=1e-10, rtol=0)


def attention(memory, x, episode, window):
    """Compute Vaswani et al. 2017, eq. 1, over the rows of one stream that row t may see."""
    vectors = [programs(memory, row, [D, D, D]) for row in x]
    y = np.zeros((len(x), H, D))
    for t in range(len(x)):
        seen = [j for j in range(t + 1) if episode[j] == episode[t] and j > t - window]
        for h in range(H):
            share = softmax(np.array([vectors[t][h][0] @ vectors[j][h][1] for j in seen]) / D**0.5)
            y[t, h] = sum(a * vectors[j][h][2] for a, j in zip(share, seen, strict=True))
    return y


@pytest.mark.parametrize("window", [1, 3, T, 20])
@pytest.mark.parametrize("resets", [(), (0,), (2, 5)])
@pytest.mark.parametrize("cut", [None, 4])
def test_attention_is_the_papers_equation(window, resets, cut):
    memory = Attention(H * D, H, window).double()
    x = 2 * torch.randn(T, B, H * D, dtype=torch.float64)
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[list(resets), 1] = True
    y, state = memory.unroll(x[:cut], memory.initial_state(B), is_first[:cut])
    if cut:
        y = torch.cat([y, memory.unroll(x[cut:], state, is_first[cut:])[0]])
    for b in range(B):
        episode = np.cumsum(is_first[:, b].numpy())
        expected = attention(memory, x[:, b].numpy(), episode, window).reshape(T, H * D)
        torch.testing.assert_close(y[:, b], torch.from_numpy(expected), atol=1e-10, rtol=0)


def matrix_lstm(memory, x, forget_gate):
    """Compute Beck et al. 2024, eqs. 19-27, without a stabiliser."""
    input_bias, forget_bias = memory.input_bias.tolist(), memory.forget_bias.tolist()
    gate = {"sigmoid": sigmoid, "exponential": np.exp}[forget_gate]
    C, n, y = np.zeros((H, D, D)), np.zeros((H, D)), np.zeros((len(x), H, D))
    for t in range(len(x)):
        for h, (q, k, v, i, f, o) in enumerate(programs(memory, x[t], [D, D, D, 1, 1, D])):
            i, f, k = np.exp(i + input_bias[h]), gate(f + forget_bias[h]), k / D**0.5
            C[h], n[h] = f * C[h] + i * np.outer(v, k), f * n[h] + i * k
            y[t, h] = sigmoid(o) * (C[h] @ q) / max(abs(n[h] @ q), 1)
    return y


@pytest.mark.parametrize("forget_gate", ["sigmoid", "exponential"])
@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("input_bias", [-8.0, 0.0, 8.0])
def test_matrix_lstm_is_the_papers_equations(forget_gate, scale, input_bias):
    """Inputs let the stabiliser rise, fall and stay at zero, over T steps and over a long run."""
    memory = MatrixLSTM(H * D, H, forget_gate).double()
    with torch.no_grad():
        memory.input_bias += input_bias
    x = scale * torch.randn(4 * T, B, H * D, dtype=torch.float64)
    y, _ = memory.unroll(x, memory.initial_state(B), torch.zeros(4 * T, B, dtype=torch.bool))
    for b in range(B):
        expected = matrix_lstm(memory, x[:, b].numpy(), forget_gate).reshape(4 * T, H * D)
        torch.testing.assert_close(y[:, b], torch.from_numpy(expected), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("scale", [-50.0, 0.0, 50.0])
def test_an_empty_matrix_is_empty_in_any_scale(scale):
    """A fresh state is zero, so its stabiliser must not affect the first step."""
    memory = MatrixLSTM(H * D, H).double()
    x, fresh = torch.randn(B, H * D, dtype=torch.float64), memory.initial_state(B)
    y, _ = memory.step(x, fresh)
    other, _ = memory.step(x, fresh._replace(log_scale=fresh.log_scale + scale))
    torch.testing.assert_close(other, y, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("gate", [-200.0, 200.0])
def test_a_gate_beyond_floats_overflows_nothing(gate):
    memory = MatrixLSTM(H * D, H, "exponential")
    with torch.no_grad():
        memory.input_bias += gate
        memory.forget_bias += gate / 100
    x = torch.randn(300, B, H * D, requires_grad=True)
    is_first = torch.zeros(300, B, dtype=torch.bool)
    y, state = memory.unroll(x, memory.initial_state(B), is_first)
    y.square().sum().backward()
    assert all(tensor.isfinite().all() for tensor in (y, *state, x.grad))
    assert all(parameter.grad.isfinite().all() for parameter in memory.parameters())
