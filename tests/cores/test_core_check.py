"""The check of a user's core: an error inside its methods is one line that says where."""

import pytest

from fastweights.cores import build_core, import_core

SOURCE = """\
from dataclasses import dataclass
from typing import NamedTuple
from torch import Tensor, nn
from fastweights.cores import Core, alone, unroll_by_steps

class Sum(NamedTuple):
    sum: Tensor

@dataclass(frozen=True, kw_only=True)
class Sizes:
    width: int = 8

class Adding(Core):
    equation, source = "s_t = s_(t-1) + U x_t", "a user"

    def __init__(self, input_size, config):
        super().__init__()
        self.input_size, self.output_size = input_size, config.width
        self.write = nn.Linear(input_size, config.width)

    def initial_state(self, batch_size):
        return Sum(self.write.weight.new_zeros(batch_size, self.output_size))

    def step(self, x, state):
        total = state.sum + self.write(x)  # line 25
        return total.clone(), Sum(total)

    unroll = unroll_by_steps

adding = alone(Adding, "Sum", Sizes())
"""
RAISED = "adder:adding: initial_state(), step() or unroll() raised "
BROKEN = {
    f"{RAISED}TypeError: Adding.step() takes 2 positional arguments but 3 were given": (
        "def step(self, x, state)",
        "def step(self, x)",
    ),
    f"{RAISED}TypeError: Adding.unroll() takes 3 positional arguments but 4 were given": (
        "unroll = unroll_by_steps",
        "def unroll(self, x, state):\n        pass",
    ),
    f"{RAISED}RuntimeError: mat1 and mat2 shapes cannot be multiplied": (
        "self.write(x)",
        "self.write(x[:, 1:])",
    ),
    f"{RAISED}AttributeError: 'Sum' object has no attribute 'total' (adder.py, line 25)": (
        "state.sum +",
        "state.total +",
    ),
    f"{RAISED}ValueError: no: (adder.py, line 25)": (
        "total = state.sum + self.write(x)",
        "raise ValueError('no:\\nbut')",
    ),
    "initial_state().sum is a list: return a NamedTuple of tensors": (
        "return Sum(self.write.weight.new_zeros(batch_size, self.output_size))",
        "return Sum([1.0])",
    ),
}


def refused(own_module, before: str, after: str) -> ValueError:
    assert before in SOURCE
    own_module("adder", SOURCE.replace(before, after))
    import_core("adder:adding")
    with pytest.raises(ValueError) as raised:
        build_core("adder:adding", 3)
    return raised.value


@pytest.mark.parametrize("says", BROKEN)
def test_what_a_method_raises_is_one_line(says, own_module):
    error = refused(own_module, *BROKEN[says])
    assert says in str(error) and "\n" not in str(error)


def test_the_place_of_a_wrong_shape_is_in_the_user_s_file_and_the_cause_is_kept(own_module):
    error = refused(own_module, "self.write(x)", "self.write(x[:, 1:])")
    assert str(error).endswith(" (adder.py, line 25)")
    assert isinstance(error.__cause__, RuntimeError)


def test_the_example_itself_is_accepted(own_module):
    own_module("adder", SOURCE)
    import_core("adder:adding")
    assert build_core("adder:adding", 3).output_size == 8
