"""Measure how much an untrained memory remembers of its last inputs.

    python benchmarks/fresh_memories.py                                       every core
    python benchmarks/fresh_memories.py lstm rdn rdn:feature_map=unit --json fresh.json

A core with its initial weights reads random inputs. For a random projection of its last output, the
norm of the gradient with respect to an earlier input is divided by the norm with respect to the
last input. A value of 0.01 means that the earlier input affects the output a hundred times less
than the last input. Values are medians over random weights, at the published small agent's sizes.
"""

import argparse
import ast
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from fastweights.cores import CORES, build_core
from fastweights.host import one_line_errors, user_input
from fastweights.launch.cli.parser import Parser

EARLIER = (1, 2, 4, 8, 16, 32)  # steps before the last input
INPUTS, STEPS, STREAMS, DRAWS = 256, 64, 8, 5


def options_of(core: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of `name:option=value,option=value`.

    A value is a number or another Python literal; anything else is a string.

    Raises:
        ValueError: an option has no value; one line.
    """
    name, _, rest = core.partition(":")
    options: dict[str, Any] = {}
    for option in filter(None, rest.split(",")):
        key, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"{core}: an option has a value, as in rdn:feature_map=unit")
        options[key] = value
        with suppress(ValueError, SyntaxError):
            options[key] = ast.literal_eval(value)
    return name, options


def remembered(core: str, seed: int) -> list[float]:
    """Return the relative norm at each of `EARLIER`, for one draw of weights and inputs."""
    name, options = options_of(core)
    torch.manual_seed(seed)
    memory = build_core(name, INPUTS, **options)
    x = torch.randn(STEPS, STREAMS, INPUTS, requires_grad=True)
    is_first = torch.zeros(STEPS, STREAMS, dtype=torch.bool)
    y, _ = memory(x, memory.initial_state(STREAMS), is_first)
    (gradient,) = torch.autograd.grad((y[-1] * torch.randn_like(y[-1])).sum(), x)
    norms = gradient.norm(dim=(1, 2))
    return [(norms[-1 - steps] / norms[-1]).item() for steps in EARLIER]


def medians(core: str) -> list[float]:
    """Return the medians over `DRAWS` draws."""
    draws = (remembered(core, seed) for seed in range(DRAWS))
    return [statistics.median(same) for same in zip(*draws, strict=True)]


def table(found: Mapping[str, Sequence[float]]) -> Table:
    """Return the table that the command prints."""
    titles = ("core", *(f"{steps} earlier" for steps in EARLIER))
    shown = Table(*titles, title="Effect of an earlier input, relative to the last one's")
    for core, shares in found.items():
        shown.add_row(core, *(f"{share:.4f}" for share in shares))
    return shown


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = Parser(__doc__)
    parser.add_argument(
        "cores", nargs="*", default=list(CORES), help="name:option=value,... (default: every core)"
    )
    parser.add_argument("--json", type=Path, help="file for the figures and the machine")
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    given = parser().parse_args(arguments)
    check_folder(given.json)
    machine = describe()
    with user_input():
        found = {core: medians(core) for core in given.cores}
    Console(width=120).print(table(found))
    shares = {core: dict(zip(map(str, EARLIER), one, strict=True)) for core, one in found.items()}
    write_json(given.json, {"machine": machine, "cores": shares})


if __name__ == "__main__":
    main()
