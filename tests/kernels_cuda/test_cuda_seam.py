"""That each pair of functions is what the generic layer calls and registers."""

import inspect

import pytest
import torch
from cuda_cases import BATCH, CASES, HEADS, RESETS, make

from kernels.registry import OPERATIONS
from kernels.signature import Sizes, shape

EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def signature_of(case):
    return OPERATIONS[case.name.split("-")[0]].signature


@EVERY_CASE
def test_arguments_are_those_of_the_signature(case):
    signature = signature_of(case)
    forward = list(inspect.signature(case.pair.forward).parameters)
    backward = list(inspect.signature(case.pair.backward).parameters)
    count, options = len(signature.arguments), list(signature.options)
    assert forward[count:] == [*options, "save"]
    assert backward[:count] == forward[:count]
    assert forward.index("is_first") == len(signature.inputs) + len(signature.weights)
    incoming = count + len(case.pair.SAVED) + 1 + len(signature.state)
    assert backward[incoming:] == options


@EVERY_CASE
def test_results_have_the_registered_shapes(shim, case):
    signature, T, size = signature_of(case), 3, 6
    tensors, _ = make(case, T, BATCH, HEADS, size, size)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    states = [single.pop(name) for name in case.states]
    results = case.pair.forward(
        *single.values(), RESETS["middle"](T, BATCH), *states, *case.options
    )
    sizes = Sizes({"T": T, "B": BATCH, "H": HEADS, "K": size, "V": size, "D": size})
    kept = [tuple(axes.split()) for axes in case.pair.SAVED.values()]
    axes = [signature.output.axes, *(state.axes for state in signature.state), *kept]
    assert [list(result.shape) for result in results] == [shape(a, sizes) for a in axes]
    assert {result.dtype for result in results} == {torch.float32}
