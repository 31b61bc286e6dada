"""Each pair of functions returns what the generic layer registers."""

import pytest
import torch
from cuda_cases import BATCH, CASES, HEADS, RESETS, make

from fastweights.kernels.machinery.signature import Sizes, shape

EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


@EVERY_CASE
def test_results_have_the_registered_shapes(shim, case):
    signature, T, size = case.pair.signature, 3, 6
    tensors, _ = make(case, T, BATCH, HEADS, size, size)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    states = [single.pop(name) for name in case.states]
    results = case.pair.forward(
        *single.values(), RESETS["middle"](T, BATCH), *states, *case.options
    )
    sizes = Sizes({"T": T, "B": BATCH, "H": HEADS, "K": size, "V": size, "D": size})
    kept = [tuple(axes.split()) for axes in case.pair.source.saved.values()]
    axes = [signature.output.axes, *(state.axes for state in signature.state), *kept]
    assert [list(result.shape) for result in results] == [shape(a, sizes) for a in axes]
    assert {result.dtype for result in results} == {torch.float32}
