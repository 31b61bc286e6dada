"""Compare the backward passes of the C++ kernels before and after a change to their sources.

    git worktree add ../before COMMIT
    python benchmarks/kernels_before.py --before ../before --json result.json

Both versions are called alternately with the same tensors. The other checkout's operators must
have the same arguments.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from fastweights.host import sleep_while_waiting

    sleep_while_waiting()  # training runs do so, too

import torch

from benchmarks.json_file import write_json
from benchmarks.kernel_calls import CALLS, Row, example
from benchmarks.machine import building
from benchmarks.timing import Run, add_options, median_ratio, take_turns, use_options
from fastweights.host import UserError, one_line_errors, tune_allocator
from fastweights.kernels.machinery import cpu_build
from fastweights.kernels.machinery.cpu_call import CpuKernel
from fastweights.kernels.machinery.signature import Sizes
from fastweights.kernels.registry import OPERATIONS
from fastweights.launch.cli.parser import Parser

REWOUND = ("recurrent_delta_rule", "delta_rnn", "delta_lstm", "self_referential")
SIZES = [name for name, sizes in CALLS.items() if sizes["T"] > 1]


def before(kernel: CpuKernel, checkout: Path) -> CpuKernel:
    """Return the same kernel, built from the sources of another checkout."""
    source = checkout / "kernels" / kernel.signature.name / "cpu.cpp"
    if not source.is_file():
        raise UserError(f"--before {checkout}: there is no {source}")
    return replace(kernel, source=source.resolve())


def backward(name: str, call: str) -> tuple[list[torch.Tensor], list[str]]:
    """Return the tensors and options for the backward pass of `call`, an entry of `CALLS`."""
    case, kernel = example(name, call, "cpu"), OPERATIONS[name].backends["cpu"].kernel
    options = list(case.operation.signature.options.values())
    y, *others = kernel.forward(*case.tensors, *options)
    states = dict(zip([s.name for s in case.operation.signature.state], others, strict=False))
    saved = [*others[len(states) :], *(states[name] for name in kernel.final)]
    unused = [state.new_empty([0] * state.ndim) for state in states.values()]
    return [*case.tensors, *saved, torch.ones_like(y), *unused], options


def run(kernel: CpuKernel, tensors: list[torch.Tensor], options: list[str]) -> Run:
    """Build the kernel's backward pass, and return a call of it."""
    sizes = kernel.signature.check(tensors[: len(kernel.signature.arguments)])
    plan = kernel.plan("backward", tensors[0].dtype, Sizes(sizes), options)
    return partial(plan.run, tensors)


def measure(name: str, call: str, options: argparse.Namespace) -> Row:
    """Return the seconds of the backward pass in each round, before and after the change."""
    ours, (tensors, chosen) = OPERATIONS[name].backends["cpu"].kernel, backward(name, call)
    with patch.object(cpu_build, "HEADERS", options.before.resolve() / "kernels" / "include"):
        runs = {"before": run(before(ours, options.before), tensors, chosen)}
    runs["after"] = run(ours, tensors, chosen)
    equal = all(map(torch.equal, runs["before"](), runs["after"]()))
    samples = take_turns(runs, options.rounds, options.seconds, "cpu")
    return {
        "operation": name,
        "size": call,
        **{f"{way}_ms": 1e3 * statistics.median(each) for way, each in samples.items()},
        "after_to_before": median_ratio(samples["after"], samples["before"]),
        "same_bits": equal,
        "rounds": len(samples["after"]),
        "seconds": samples,
    }


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="folder of the other checkout")
    parser.add_argument(
        "--ops",
        nargs="+",
        choices=list(OPERATIONS),
        default=list(REWOUND),
        help=f"operations to time (default: {' '.join(REWOUND)})",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=SIZES,
        default=["rl", "code"],
        help="sizes of the calls (default: rl code)",
    )
    add_options(parser, "measurements of each version", "for each call", 20.0, devices=("cpu",))
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(words)
    described, rows = use_options(options), []
    tune_allocator()  # training runs do so, too
    print(f"{'operation':22}{'size':>6}{'before, ms':>12}{'after, ms':>11}{'ratio':>8}  same bits")
    for name in options.ops:
        for call in options.sizes:
            with building():
                rows.append(row := measure(name, call, options))
            print(
                f"{name:22}{call:>6}{row['before_ms']:12.3f}{row['after_ms']:11.3f}"
                f"{row['after_to_before']:8.3f}  {'yes' if row['same_bits'] else 'no'}",
                flush=True,
            )
    write_json(options.json, {"machine": described, "rows": rows})


if __name__ == "__main__":
    main()
