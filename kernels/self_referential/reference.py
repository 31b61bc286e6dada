"""A weight matrix that rewrites itself (SRWM).

One matrix W_{t-1} [D, 3D + 4] per head computes both the output and its own update:

    y_t, q_t, k_t, b_t = split(W_{t-1}^T x_t)          sizes D, D, D, 4
    W_t = W_{t-1} + phi(k_t) (sigma(b_t) * (W_{t-1}^T phi(q_t) - W_{t-1}^T phi(k_t)))^T

Each of the four strengths b_t applies to one of the column blocks y, q, k, b; as published, sigma
is the sigmoid. The state is the *shift* W_t - W_0 from the trainable initial weights W_0, so that a
zero state is a fresh one.
Source: Irie et al. 2022 (A modern self-referential weight matrix), eqs. 5-8.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels import feature_maps
from fastweights.kernels.fast_weights import add_outer, read_memory
from fastweights.kernels.recurrence import loop_over_time


class SelfReferentialState(NamedTuple):
    """The shift of the matrix from its learned initial weights."""

    shift: Float[Tensor, "B H D 3*D+4"]


def step(
    x: Float[Tensor, "B H D"],
    state: SelfReferentialState,
    initial_weights: Float[Tensor, "H D 3*D+4"],
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Float[Tensor, "B H D"], SelfReferentialState]:
    """Compute one step: read, then write."""
    y, query, key, strengths = program(x, state, initial_weights, feature_map, strength_map)
    # One product for W^T q - W^T k: only the difference of query and key matters.
    difference = read_memory(initial_weights + state.shift, query - key)
    change = _per_column(strengths, _blocks(x)) * difference
    return y, SelfReferentialState(add_outer(state.shift, key, change))


def program(
    x: Float[Tensor, "B H D"],
    state: SelfReferentialState,
    initial_weights: Float[Tensor, "H D 3*D+4"],
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Tensor, ...]:
    """Return what the matrix computes from x: y_t, phi(q_t), phi(k_t) and strengths sigma(b_t)."""
    phi, sigma = feature_maps.feature_map(feature_map), feature_maps.strength_map(strength_map)
    y, query, key, strengths = read_memory(initial_weights + state.shift, x).split(_blocks(x), -1)
    return y, phi(query), phi(key), sigma(strengths)


def _blocks(x: Float[Tensor, "B H D"]) -> list[int]:
    return [x.shape[-1]] * 3 + [4]


def _per_column(strengths: Float[Tensor, "B H 4"], blocks: list[int]) -> Tensor:
    """Repeat each block's strength over that block's columns: [B, H, 3D + 4]."""
    each = strengths.split(1, -1)
    return torch.cat([s.expand(*s.shape[:-1], n) for s, n in zip(each, blocks, strict=True)], -1)


def unroll(
    x: Float[Tensor, "T B H D"],
    is_first: Bool[Tensor, "T B"],
    state: SelfReferentialState,
    initial_weights: Float[Tensor, "H D 3*D+4"],
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Float[Tensor, "T B H D"], SelfReferentialState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    options = {"feature_map": feature_map, "strength_map": strength_map}
    one_step = partial(step, initial_weights=initial_weights, **options)
    return loop_over_time(one_step, (x,), is_first, state, empty=x)
