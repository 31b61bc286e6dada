"""Composed operations have the rules of built ones: checks, dtypes, autocast, the device meta."""

import pytest
import torch

from fastweights.kernels.attention import attention
from fastweights.kernels.delta_delta_rule import delta_delta_rule
from fastweights.kernels.delta_mlp import delta_mlp
from fastweights.kernels.delta_product import delta_product, gated_delta_product
from fastweights.kernels.elman import elman
from fastweights.kernels.gru import gru
from fastweights.kernels.linear_attention import normalised_linear_attention
from fastweights.kernels.machinery.signature import Signature, shape
from fastweights.kernels.mlstm import mlstm

COMPOSED = {
    "attention": attention,
    "delta_delta_rule": delta_delta_rule,
    "delta_mlp": delta_mlp,
    "delta_product": delta_product,
    "elman": elman,
    "gated_delta_product": gated_delta_product,
    "gru": gru,
    "mlstm": mlstm,
    "normalised_linear_attention": normalised_linear_attention,
}
SIZES = {"T": 6, "B": 3, "H": 2, "PH": 4, "S": 2, "K": 4, "V": 5, "D": 4, "E": 7, "M": 5}
every = pytest.mark.parametrize("name", COMPOSED)


class Call:
    """A call of a composed operation with random numbers, reset in the middle."""

    def __init__(self, name: str):
        self.signature = Signature(name, COMPOSED[name])
        generator = torch.Generator().manual_seed(0)
        self.tensors = [
            torch.rand(shape(argument.axes, SIZES), generator=generator) / 2
            for argument in self.signature.arguments
        ]
        self.place = self.signature.is_first_position
        self.tensors[self.place] = torch.zeros(SIZES["T"], SIZES["B"], dtype=torch.bool)
        self.tensors[self.place][3, 1] = True

    def run(self, tensors: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
        options = [*self.signature.options.values()]
        call = self.signature.unflatten(tensors or self.tensors, options)
        y, state = COMPOSED[self.signature.name](*call)
        return [y, *state]

    def changed(self, place: int, tensor: object) -> list:
        return [*self.tensors[:place], tensor, *self.tensors[place + 1 :]]


@every
def test_autocast_changes_nothing(name, shapes_unchecked):
    call = Call(name)
    plain = call.run()
    with torch.autocast("cpu", torch.bfloat16):
        cast = call.run()
    for tensor, expected in zip(cast, plain, strict=True):
        assert tensor.dtype is torch.float32 and torch.equal(tensor, expected)


@every
def test_a_wrong_argument_is_named(name, shapes_unchecked):
    call = Call(name)
    for place, argument in enumerate(call.signature.arguments):
        tensor, named = call.tensors[place], f"{name}: {argument.name}"
        with pytest.raises(ValueError, match=rf"{named} has shape .* expected \["):
            call.run(call.changed(place, tensor.unsqueeze(0)))
        with pytest.raises(ValueError, match=f"{named} has dtype"):
            call.run(call.changed(place, tensor.long()))
        with pytest.raises(TypeError, match=f"{named} is a ndarray, expected a tensor"):
            call.run(call.changed(place, tensor.numpy()))


@every
def test_rows_of_resets_that_are_missing_are_refused(name, shapes_unchecked):
    call = Call(name)
    with pytest.raises(ValueError, match=rf"{name}: is_first has shape \[5, 3\]"):
        call.run(call.changed(call.place, call.tensors[call.place][1:]))


@every
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_states_are_never_half_and_double_if_a_part_of_them_is(name, kind, shapes_unchecked):
    call = Call(name)
    wanted = torch.float64 if kind is torch.float64 else torch.float32
    for place in range(call.place + 1, len(call.tensors)):
        found = call.run(call.changed(place, call.tensors[place].to(kind)))
        assert {tensor.dtype for tensor in found} == {wanted}
        for tensor, expected in zip(found, call.run(), strict=True):
            torch.testing.assert_close(tensor.float(), expected, rtol=0.02, atol=0.02)


@every
def test_shapes_can_be_computed_without_data(name, shapes_unchecked):
    call = Call(name)
    found = call.run([tensor.to("meta") for tensor in call.tensors])
    assert [(tensor.shape, tensor.device.type) for tensor in found] == [
        (tensor.shape, "meta") for tensor in call.run()
    ]


@every
def test_a_state_that_is_one_tensor_is_refused(name):
    call = Call(name)
    given = call.signature.unflatten(call.tensors, [])
    given[len(call.signature.inputs) + 1] = call.tensors[-1]
    with pytest.raises(TypeError, match=f"{name}: state is a Tensor, expected [A-Za-z]+\\("):
        COMPOSED[name](*given)


@every
def test_a_state_may_be_a_plain_tuple_in_each_call(name):
    call = Call(name)
    given = call.signature.unflatten(call.tensors, [*call.signature.options.values()])
    place = len(call.signature.inputs) + 1
    given[place] = tuple(given[place])
    for _ in range(2):
        y, state = COMPOSED[name](*given)
        torch.testing.assert_close([y, *state], call.run())


def test_matrices_that_the_heads_do_not_share_evenly_are_refused(shapes_unchecked):
    call = Call("delta_mlp")
    odd = [part[:, :, 1:] if part.shape[2:3] == (4,) else part for part in call.tensors]
    odd[call.place + 1 :] = (part[:, 1:] for part in call.tensors[call.place + 1 :])
    with pytest.raises(ValueError, match=r"delta_mlp: up_k writes to 3 matrices, .* the 2 heads"):
        call.run(odd)
