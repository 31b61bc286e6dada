# ruff: noqa: E402 (the import path is put right before the imports)
"""What each memory costs an agent: seconds an update, beside the LSTM's, and the share of a run.

    python benchmarks/cores.py                     all memories, some minutes
    python benchmarks/cores.py --cores lstm rdn --json cores.json

Of a run only the core differs. So the cores are timed alone, by turns, in the default preset's
sizes: acting on all streams, once for every step of an unroll, and learning from it by
micro-batches, forward and backward. How long an update of the LSTM's whole agent takes comes from
`benchmarks/training.py`'s parts, on as many threads and the same device: environments, inference
and update, one after the other.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])
if __name__ == "__main__":
    from fastweights.host.waiting import sleep_while_waiting

    sleep_while_waiting()  # as every training run does

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
from fastweights.host.allocator import tune_allocator
from fastweights.host.errors import one_line_errors
from fastweights.kernels.recurrence import State
from fastweights.launch.cli.parser import Parser
from fastweights.training.options import RunOptions
from fastweights.training.presets import preset

COMPARED_WITH = "lstm"
WANTED = 0.05  # of a run, at most, for a fast-weight memory in the LSTM's place
PARTS = ("acting", "learning")
ATARI = (4, 84, 84), 18  # a frame's shape, actions


def contenders(names: Sequence[str], device: str) -> dict[tuple[str, str], Run]:
    """For every core an acting step and an unroll's learning."""
    runs: dict[tuple[str, str], Run] = {}
    for name in names:
        options = preset("paper", name)
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
    """One row a core; `samples` are seconds a call, `parts` the LSTM agent's steps a second."""
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
    """Agent steps/s where each step waits for all parts, whichever the schedule of training is."""
    return bound(parts, "lockstep")


def _table(found: list[dict[str, Any]], machine: dict[str, Any], parts: dict[str, float]) -> Table:
    said = in_words(machine)
    steps = f"the LSTM's agent: {_rate(parts):,.0f} agent steps/s by its parts"
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "acting, ms": lambda row: f"{1e3 * row['acting']:.2f}",
        "learning, ms": lambda row: f"{1e3 * row['learning']:.0f}",
        "an update, ms": lambda row: f"{1e3 * row['seconds']:.0f}",
        "of a run, beside the LSTM": lambda row: f"{row['share']:+.1%}",
    }
    shown = Table("core", *columns, title=f"What a memory costs ({steps})", caption=said)
    for row in found:
        shown.add_row(row["core"], *(show(row) for show in columns.values()))
    return shown


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    default = [COMPARED_WITH, *(name for name in CORES if name != COMPARED_WITH)]
    parser.add_argument(
        "--cores", nargs="+", choices=list(CORES), default=default, metavar="CORE", help="all"
    )
    parser.add_argument("--env", default="Qbert", help="of the whole agent's parts: Qbert")
    add_options(parser, "turns of each", "in all, without the whole agent", 60.0)
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    options = parser().parse_args(words)
    check_game(options.env)
    machine = use_options(options)
    tune_allocator()  # as every training run does
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
