"""All gradients of the CUDA sources when the state grows, with keys that are not normalised.

Only the Delta RNN and the Delta LSTM take keys as they are; RDN and SRWM have CUDA kernels only
with softmax.
"""

import pytest
import torch
from cuda_cases import BATCH, CASES, HEADS, RESETS, computed, expected, largest_relative_error
from cuda_shim import ASCENDING, DESCENDING

KEYS = ("k", "recurrent_k")
TIMES_REFERENCE, AT_LEAST = 20, 5e-5


def growing(case, time, size, scale, seed):
    """Return tensors that float32 holds exactly, with keys times `scale`; gradients are 1."""
    torch.manual_seed(seed)
    tensors = case.tensors(time, BATCH, HEADS, size, size)
    for name, tensor in tensors.items():
        if name in KEYS:
            tensors[name] = torch.randn_like(tensor) * scale
        elif name in case.states:
            tensors[name] = tensor * 0.1
    tensors = {name: tensor.float().double() for name, tensor in tensors.items()}
    like = [torch.empty(time, BATCH, HEADS, size), *(tensors[name] for name in case.states)]
    return tensors, [torch.randn(tensor.shape).double() for tensor in like]


def worst(found, right):
    return max(largest_relative_error(found[name], tensor) for name, tensor in right.items())


@pytest.mark.parametrize("resets", ["never", "middle"])
@pytest.mark.parametrize(("time", "size", "scale"), [(10, 8, 2.0), (50, 8, 1.0), (12, 33, 1.3)])
@pytest.mark.parametrize("name", ["delta_rnn-B", "delta_rnn-A", "delta_lstm"])
def test_gradients_of_a_growing_state(shim, name, time, size, scale, resets):
    case, is_first = CASES[name], RESETS[resets](time, BATCH)
    errors, unavoidable, grown = [], [], []
    for seed in range(3):
        tensors, grads = growing(case, time, size, scale, seed)
        right = expected(case, tensors, is_first, grads)
        single = {n: tensor.detach().float() for n, tensor in tensors.items()}
        given = [grad.float() for grad in grads]
        unavoidable.append(worst(expected(case, single, is_first, given), right))
        errors.append(worst(computed(case, single, is_first, given), right))
        grown.append(right["final weights"].abs().max().item())
    assert max(grown) > 1e3
    assert max(errors) <= max(TIMES_REFERENCE * max(unavoidable), AT_LEAST), (errors, unavoidable)


@pytest.mark.parametrize("size", [7, 33])
@pytest.mark.parametrize("name", ["delta_rnn-B", "delta_lstm"])
def test_the_order_of_lanes_changes_no_bit_of_a_growing_state(shim, name, size):
    case, is_first = CASES[name], RESETS["middle"](8, BATCH)
    tensors, grads = growing(case, 8, size, 2.0, 0)
    single = {n: tensor.float() for n, tensor in tensors.items()}
    runs = []
    for order in (ASCENDING, DESCENDING, 11, 12):
        shim.order = order
        runs.append(computed(case, single, is_first, [grad.float() for grad in grads]))
    for run in runs[1:]:
        for each, tensor in runs[0].items():
            assert torch.equal(run[each], tensor), each
