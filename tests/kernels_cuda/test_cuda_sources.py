"""The sources of the CUDA kernels, run on the CPU, against the float64 references."""

import pytest
import torch
from cuda_cases import BATCH, CASES, HEADS, RESETS, WIDE, check, computed, make
from cuda_shim import ASCENDING, DESCENDING, Shim

EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


@EVERY_CASE
@pytest.mark.parametrize("size", [1, 3, 8, 17, 32])
@pytest.mark.parametrize("T", [1, 2, 7, 33])
def test_sizes_and_lengths(shim, case, size, T):
    if size == 1 and "unit" in case.options:
        pytest.skip(
            "the direction of a single number is its sign, so its gradient is only rounding"
        )
    check(case, T, size, size, RESETS["random"](T, BATCH))


@EVERY_CASE
@pytest.mark.parametrize("resets", RESETS)
def test_resets(shim, case, resets):
    check(case, 9, 5, 5, RESETS[resets](9, BATCH))


@EVERY_CASE
def test_odd_strides(shim, case):
    check(case, 5, 6, 6, RESETS["middle"](5, BATCH), strided=True)


@pytest.mark.parametrize(("name", "K", "V"), WIDE)
def test_wide_heads_and_unequal_sizes(shim, name, K, V):
    check(CASES[name], 11, K, V, RESETS["random"](11, BATCH))


@EVERY_CASE
def test_no_rows(shim, case):
    check(case, 0, 4, 4, RESETS["never"](0, BATCH))


@EVERY_CASE
def test_without_rows_the_state_is_bit_identical(shim, case):
    tensors, grads = make(case, 0, BATCH, HEADS, 5, 5)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    actual = computed(case, single, RESETS["never"](0, BATCH), [grad.float() for grad in grads])
    for name in case.states:
        assert torch.equal(actual[f"final {name}"], single[name]), name


@EVERY_CASE
def test_no_batch(shim, case):
    tensors, grads = make(case, 3, 0, HEADS, 4, 4)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    actual = computed(case, single, RESETS["never"](3, 0), [grad.float() for grad in grads])
    for name, tensor in tensors.items():
        assert torch.equal(actual[f"grad {name}"], torch.zeros(tensor.shape))


@EVERY_CASE
@pytest.mark.parametrize("reset", [0, 3])
def test_nothing_crosses_a_reset(shim, case, reset):
    """Rows before a reset get exactly zero gradient, and their NaN does not reach later rows."""
    T = 6
    tensors, grads = make(case, T, BATCH, HEADS, 5, 5)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    given = [grad.float() for grad in grads]
    given[0][:reset] = 0
    is_first = (torch.arange(T) == reset)[:, None].expand(T, BATCH)
    rows = {name for name in single if single[name].shape[0] == T}
    actual = computed(case, single, is_first, given)
    for name in rows:
        assert not actual[f"grad {name}"][:reset].any(), name
    for name in case.states:
        assert not actual[f"grad {name}"].any(), name
    poisoned = single | {name: torch.full_like(single[name], float("nan")) for name in case.states}
    with_nan = computed(case, poisoned, is_first, given)
    assert torch.equal(with_nan["y"][reset:], actual["y"][reset:])
    for name in rows:
        assert torch.equal(with_nan[f"grad {name}"][reset:], actual[f"grad {name}"][reset:]), name
    for name in case.states:
        assert torch.equal(with_nan[f"final {name}"], actual[f"final {name}"]), name
        assert reset or not with_nan[f"grad {name}"].any(), name


@EVERY_CASE
@pytest.mark.parametrize("size", [7, 17, 33])
def test_the_order_of_lanes_changes_no_bit(shim, case, size):
    T = 5
    tensors, grads = make(case, T, BATCH, HEADS, size, size)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    given, is_first = [grad.float() for grad in grads], RESETS["middle"](T, BATCH)
    runs = []
    for order in (ASCENDING, DESCENDING, 11, 12):
        shim.order = order
        runs.append(computed(case, single, is_first, given))
    for run in runs[1:]:
        for name, tensor in runs[0].items():
            assert torch.equal(run[name], tensor), name


@EVERY_CASE
def test_acting_saves_nothing(shim, case):
    tensors, _ = make(case, 1, BATCH, HEADS, 6, 6)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    states = [single.pop(name) for name in case.states]
    call = (*single.values(), RESETS["middle"](1, BATCH), *states, *case.options)
    wanted, actual = case.pair.forward(*call), case.pair.forward(*call, save=False)
    assert len(actual) == 1 + len(states)
    assert all(torch.equal(one, other) for one, other in zip(wanted, actual, strict=False))


def test_a_feature_map_without_a_kernel_is_refused(shim: Shim):
    case = CASES["self_referential"]
    tensors, _ = make(case, 2, 1, 1, 4, 4)
    x, weights, shift = (tensor.float() for tensor in tensors.values())
    with pytest.raises(ValueError, match="feature_map 'softmax', not 'elu'"):
        case.pair.forward(x, weights, RESETS["never"](2, 1), shift, "elu", "sigmoid")
