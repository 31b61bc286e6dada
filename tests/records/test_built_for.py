"""Weights from files, for modules of the same shape only."""

import pytest
import torch
from torch import nn

from fastweights.records import built_for, first_misfit

WEIGHTS = {"weight": torch.full((2, 3), 5.0), "bias": torch.full((2,), 7.0)}


def test_a_module_gets_the_weights():
    module = built_for(WEIGHTS, lambda: nn.Linear(3, 2))
    assert module(torch.ones(3)).tolist() == [22.0, 22.0]


def test_a_module_much_larger_than_the_weights_is_never_allocated():
    with pytest.raises(ValueError, match=r"weight has shape \[2, 3\], not \[1048576, 1048576\]"):
        built_for(WEIGHTS, lambda: nn.Linear(2**20, 2**20))  # four terabytes


@pytest.mark.parametrize(
    ("weights", "bias", "says"),
    [
        ({"weight": WEIGHTS["weight"]}, True, "bias is missing"),
        (WEIGHTS, False, "bias is not part of the network"),
        ({**WEIGHTS, "bias": torch.zeros(3)}, True, r"bias has shape [3], not [2]"),
        (WEIGHTS, True, None),
    ],
)
def test_the_first_difference_is_named(weights, bias, says):
    assert first_misfit(nn.Linear(3, 2, bias=bias), weights) == says
