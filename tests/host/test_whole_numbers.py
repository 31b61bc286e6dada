"""All commands accept whole numbers in the usual spellings and refuse other numbers."""

import pytest

from fastweights.host.whole_numbers import whole_number
from fastweights.launch.cli.parser import typed_options
from fastweights.launch.evaluate import EvaluateOptions
from fastweights.launch.t_maze import parser
from fastweights.training.options import RunOptions


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("20", 20),
        ("1_000_000", 1_000_000),
        ("1e9", 10**9),
        ("5E+5", 500_000),
        ("2.5e6", 2_500_000),
        ("-1e1", -10),
        ("9007199254740993", 2**53 + 1),  # no float equals it
        ("9.007199254740993e15", 2**53 + 1),
    ],
)
def test_what_people_type_is_the_number(text, number):
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["1.5", "2.5e0", "1e-3", "1.0", "x", "", "nan", "inf", "0x10", "1__0", "1e999999999"]
)
def test_anything_else_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"whole number \(1000000, 1_000_000 or 1e6\), not '"):
        whole_number(text)


@pytest.mark.parametrize("text", ["1e19", "-1e400", "9" * 5000])
def test_numbers_that_nothing_holds_are_refused_at_once(text):
    with pytest.raises(ValueError, match=r"below 2\^63") as raised:
        whole_number(text)
    assert len(str(raised.value)) < 100


def test_every_command_takes_them():
    run = typed_options(RunOptions, ["--total-steps", "1e9", "--bptt", "1e1"])
    assert (run.learner.total_steps, run.bptt) == (10**9, 10)
    assert typed_options(RunOptions, ["--bptt", "full", "--core-width", "None"]).core_width is None
    plan = typed_options(EvaluateOptions, ["run", "--max-frames", "1.08e5", "--episodes", "1_0"])
    assert (plan.max_frames, plan.episodes) == (108_000, 10)
    maze = parser().parse_args(["--total-steps", "6e5", "--seeds", "1", "1e3"])
    assert (maze.total_steps, maze.seed) == (600_000, [1, 1000])


def test_an_environments_options_take_them_too():
    options = RunOptions(env_options=("max_frames=1e5", "sticky=0.25", "bonus=1.0", "map=4x4"))
    read = options.environment_options()
    assert read == {"max_frames": 100_000, "sticky": 0.25, "bonus": 1.0, "map": "4x4"}
    assert [type(value) for value in read.values()] == [int, float, float, str]
