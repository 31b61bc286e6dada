"""Calls of several writes a step, on the delta rules' kernels, against their steps in float64."""

from collections.abc import Callable
from typing import Any

import torch
from cuda_cases import BATCH, HEADS, TOLERANCE, Tensors, numbers
from torch import Tensor

from fastweights import kernels
from fastweights.kernels import delta_product
from fastweights.kernels.feature_maps import unit
from fastweights.kernels.recurrence import forget

DELTA_PRODUCTS = {  # operations on the delta rules' kernels, and their steps
    "delta_product": (delta_product.delta_product, delta_product.step),
    "gated_delta_product": (delta_product.gated_delta_product, delta_product.gated_step),
}


def check_delta_product(
    name: str, T: int, S: int, K: int, V: int, is_first: Tensor, device: str = "cpu"
) -> None:
    """Check outputs, the final state and all gradients of S writes a step, against the steps."""
    operation, step = DELTA_PRODUCTS[name]

    def by_steps(*call: Any) -> tuple[Tensor, delta_product.DeltaRuleState]:
        *rows, is_first, state = call
        outputs = []
        for t in range(T):
            y, state = step(*(row[t] for row in rows), forget(state, is_first[t]))
            outputs.append(y)
        return torch.stack(outputs), state

    torch.manual_seed(0)
    places = (T, BATCH, HEADS)
    tensors = {"q": numbers(*places, K), "k": unit(numbers(*places, S, K))}
    tensors |= {"v": numbers(*places, S, V), "beta": 2 * numbers(*places, S).sigmoid()}
    tensors |= {"log_decay": -numbers(*places).exp() / 10} if "gated" in name else {}
    tensors["weights"] = numbers(BATCH, HEADS, K, V)
    grads = [numbers(*places, V).float(), numbers(BATCH, HEADS, K, V).float()]

    def found(unroll: Callable[..., Any], dtype: torch.dtype, device: str) -> Tensors:
        leaves = [t.float().to(device, dtype).requires_grad_() for t in tensors.values()]
        *rows, weights = leaves
        y, state = unroll(*rows, is_first.to(device), delta_product.DeltaRuleState(weights))
        given = [grad.to(device, dtype) for grad in grads]
        gradients = torch.autograd.grad([y, *state], leaves, given)
        named = zip(tensors, gradients, strict=True)
        return {"y": y, "final weights": state[0]} | {f"grad {n}": g for n, g in named}

    wanted = found(by_steps, torch.float64, "cpu")
    with kernels.backend("cuda"):
        actual = found(operation, torch.float32, device)
    for each, tensor in wanted.items():
        assert actual[each].shape == tensor.shape, each
        # The decay's gradient is a difference of larger numbers: below 1, errors count as they are.
        error = (actual[each].cpu() - tensor).abs().max() / tensor.abs().max().clamp_min(1.0)
        assert error <= TOLERANCE, each
