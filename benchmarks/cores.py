"""Measure the cost of each memory: seconds per update, and the difference from the LSTM.

    python benchmarks/cores.py                     all memories; some minutes
    python benchmarks/cores.py --cores lstm rdn --json cores.json

Runs that differ only in the memory differ only in the time of their cores. Therefore, the cores are
timed alone, alternately, at the sizes of the default preset. Acting computes one step of all
streams, once for each step of an unroll. Learning computes an unroll in micro-batches, forward and
backward. The difference from the LSTM is given as a share of the time of one update of the whole
LSTM agent. This time is the sum of the parts in `benchmarks/training.py` (environments, inference,
update), on the same number of threads and the same device.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from fastweights.host import sleep_while_waiting

    sleep_while_waiting()  # training runs do so, too

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.arguments import check_game
from benchmarks.json_file import write_json
from benchmarks.machine import in_words
from benchmarks.timing import Run, add_options, take_turns, use_options
from benchmarks.training import bound, measure_parts_elsewhere
from fastweights.agents import Network
from fastweights.cores import CORES, Core
from fastweights.host import one_line_errors, tune_allocator
from fastweights.kernels import State
from fastweights.launch.cli.parser import Parser
from fastweights.training import RunOptions, preset

COMPARED_WITH = "lstm"
WANTED = 0.05  # largest acceptable slow-down of a run by a fast-weight memory instead of the LSTM
PARTS = ("acting", "learning")
ATARI = (4, 84, 84), 18  # shape of a frame, number of actions


def contenders(names: Sequence[str], device: str) -> dict[tuple[str, str], Run]:
    """Return, for every core, an acting step and the learning from one unroll."""
    runs: dict[tuple[str, str], Run] = {}
    for name in names:
        options = replace(preset("paper", name), precision="float32")
        core = Network(options.network(*ATARI)).core.to(device)
        state = core.initial_state(options.num_envs)
        x, is_first = _inputs(core, 1, options.num_envs, device)
        runs[name, "acting"] = partial(_act, core, x, state, is_first)
        runs[name, "learning"] = partial(_learn, core, options, device)
    return runs


@torch.no_grad()
def _act(core: Core, x: Tensor, state: State, is_first: Tensor) -> None:
    core.unroll(x, state, is_first)


def _learn(core: Core, options: RunOptions, device: str) -> None:
    streams = options.learner.streams_at_once(options.batch_size, torch.device(device))
    for _ in range(0, options.num_envs, streams):
        x, is_first = _inputs(core, options.unroll_length, streams, device)
        y, _ = core.unroll(x.requires_grad_(), core.initial_state(streams), is_first)
        y.square().mean().backward()


def _inputs(core: Core, time: int, streams: int, device: str) -> tuple[Tensor, Tensor]:
    x = torch.randn(time, streams, core.input_size, device=device)
    return x, torch.zeros(time, streams, dtype=torch.bool, device=device)


def rows(
    samples: dict[tuple[str, str], list[float]], parts: dict[str, float]
) -> list[dict[str, Any]]:
    """Return one row per core.

    `samples` are seconds per call; `parts` are agent steps/s of the LSTM agent's parts.
    """
    options = RunOptions()
    update = options.num_envs * options.unroll_length / _rate(parts)
    found = []
    for name in dict.fromkeys(name for name, _ in samples):
        acting, learning = (statistics.median(samples[name, part]) for part in PARTS)
        seconds = options.unroll_length * acting + learning
        found.append({"core": name, "acting": acting, "learning": learning, "seconds": seconds})
    beside = next(row["seconds"] for row in found if row["core"] == COMPARED_WITH)
    for row in found:
        row["share"] = (row["seconds"] - beside) / update
        row["rounds"] = {part: samples[row["core"], part] for part in PARTS}
    return found


def _rate(parts: dict[str, float]) -> float:
    """Return agent steps/s if all parts alternate, whatever the training schedule."""
    return bound(parts, "lockstep")


def _table(found: list[dict[str, Any]], machine: dict[str, Any], parts: dict[str, float]) -> Table:
    said = in_words(machine)
    steps = f"LSTM agent, from its parts: {_rate(parts):,.0f} agent steps/s"
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "acting step, ms": lambda row: f"{1e3 * row['acting']:.2f}",
        "learning, ms": lambda row: f"{1e3 * row['learning']:.0f}",
        "whole update, ms": lambda row: f"{1e3 * row['seconds']:.0f}",
        "run time against LSTM": lambda row: f"{row['share']:+.1%}",
    }
    shown = Table("core", *columns, title=f"Cost of each memory ({steps})", caption=said)
    for row in found:
        shown.add_row(row["core"], *(show(row) for show in columns.values()))
    return shown


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    default = [COMPARED_WITH, *(name for name in CORES if name != COMPARED_WITH)]
    parser.add_argument(
        "--cores",
        nargs="+",
        choices=list(CORES),
        default=default,
        metavar="CORE",
        help="memories to time (default: all)",
    )
    parser.add_argument(
        "--env", default="Qbert", help="game of the LSTM's whole agent (default Qbert)"
    )
    add_options(
        parser, "measurements of each core", "for the cores, excluding the LSTM's whole agent", 60.0
    )
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(words)
    check_game(options.env)
    machine = use_options(options)
    tune_allocator()  # training runs do so, too
    parts = measure_parts_elsewhere(
        *("paper", COMPARED_WITH, options.env, 15.0),
        threads=torch.get_num_threads(),
        device=options.device,
    )
    names = dict.fromkeys([COMPARED_WITH, *options.cores])
    samples = take_turns(
        contenders([*names], options.device), options.rounds, options.seconds, options.device
    )
    found = rows(samples, parts)
    Console(width=120).print(_table(found, machine, parts))
    write_json(options.json, {"machine": machine, "whole": parts, "rows": found})


if __name__ == "__main__":
    main()
