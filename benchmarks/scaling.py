# ruff: noqa: E402 (the import path is put right before the imports)
r"""Estimate how training scales to more cores, GPUs and machines, from the speed of its parts.

    python benchmarks/training.py --cores rdn --json training.json      measures the parts
    python benchmarks/scaling.py --parts training.json --gpu-inference 100000 --gpu-update 30000
    python benchmarks/scaling.py --environments-rate 2000 --inference-rate 1500 --update-rate 600 \
        --layout environments=512,machines=4,cores=16

Rates are agent steps/s of one core or one GPU; on Atari, an agent step is four emulator frames.
This command trains and measures nothing. It prints the assumptions of its model, which is in
benchmarks/scaling_model.py.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

import torch
from rich.console import Console

from benchmarks.json_file import check_folder, write_json
from benchmarks.scaling_model import ASSUMPTIONS, Layout, Parts, estimate
from benchmarks.scaling_output import draw, table, to_json
from fastweights.agents import Network, NetworkConfig
from fastweights.cores import CORES, count_parameters
from fastweights.host import UserError, one_line_errors, read_object, user_input
from fastweights.kernels import State
from fastweights.launch.cli.parser import Parser
from fastweights.training import RunOptions

FRAME, ACTIONS = (4, 84, 84), 6  # of Qbert
LAYOUTS = (
    Layout(environments=48, cores=2),
    Layout(environments=48, cores=16, gpus=1),
    Layout(environments=256, cores=16, gpus=1),
    Layout(environments=1024, cores=64, gpus=1),
    Layout(environments=4096, cores=128, gpus=8),
    Layout(environments=4096, machines=16, cores=32),
    Layout(environments=16_384, machines=16, cores=64, gpus=1, learners=1, learner_gpus=8),
    Layout(environments=100_000, machines=64, cores=96, gpus=1, learners=4, learner_gpus=8),
    Layout(environments=100_000, machines=64, cores=96, gpus=8),
)


def weights_and_steps(core: str, unroll: int) -> tuple[float, float]:
    """Return the bytes of the weights in float32, and the bytes of a rollout per agent step.

    An episode that ends within a rollout adds one stack of frames, which is ignored here.
    """
    with torch.device("meta"):
        network = Network(NetworkConfig(frame_shape=FRAME, num_actions=ACTIONS, core=core))
        state = network.initial_state(1)
    stack, *picture = FRAME  # each frame is sent once; the receiver stacks frames
    row = 4 + 1 + 8  # reward, is_first, last action
    seen = math.prod(picture) * (unroll + stack) + row * (unroll + 1)
    done = 8 + 4 * ACTIONS  # action, logits
    step = seen / unroll + done + _bytes(state) / unroll
    return 4.0 * count_parameters(network), step


def _bytes(state: State) -> int:
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    return sum(map(_bytes, state))


def read_rates(path: Path, core: str) -> dict[str, float]:
    """Read the rates per CPU core of the memory `core`, with preset `paper`, from a JSON file."""
    names = {"environments": "environments", "cpu_inference": "inference", "cpu_update": "update"}
    try:
        content = read_object(path)
        cores = content["machine"]["cores"]
        rates = {
            row["core"]: {ours: row[theirs] / cores for ours, theirs in names.items()}
            for row in content["rows"]
            if row["preset"] == "paper"
        }
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise UserError(
            f"{path} is not a file of `benchmarks/training.py --json` ({error!r}); make it first"
        ) from error
    if core not in rates:
        raise UserError(f"{path} has no core {core!r}; choose one with --core: {', '.join(rates)}")
    return rates[core]


def read_layout(text: str) -> Layout:
    """Parse `environments=512,cores=16,gpus=1`."""
    known = [field.name for field in fields(Layout)]
    needed = {field.name for field in fields(Layout) if field.default is MISSING}
    try:
        given = {name: int(value) for name, value in (p.split("=") for p in text.split(","))}
        if odd := (given.keys() - known) or (needed - given.keys()):
            problem = "unknown" if odd <= given.keys() else "missing"
            raise ValueError(f"{', '.join(sorted(odd))} {problem}")
        return Layout(**given)
    except ValueError as error:
        raise UserError(
            f"--layout {text}: {error}; give pairs name=number, separated by commas; the names are "
            f"{', '.join(known)}"
        ) from error


def parser() -> argparse.ArgumentParser:
    default = RunOptions()
    parser = Parser(__doc__)
    rates = parser.add_argument_group("speed of the parts, agent steps/s")
    rates.add_argument("--parts", type=Path, help="JSON file of benchmarks/training.py")
    rates.add_argument("--core", choices=list(CORES), default="rdn", help="memory (default rdn)")
    rates.add_argument("--environments-rate", type=float, help="environments on one CPU core")
    rates.add_argument("--inference-rate", type=float, help="inference on one CPU core")
    rates.add_argument("--update-rate", type=float, help="learning on one CPU core")
    rates.add_argument("--gpu-inference", type=float, help="inference on one GPU")
    rates.add_argument("--gpu-update", type=float, help="learning on one GPU")
    rates.add_argument(
        "--call-seconds",
        type=float,
        default=2e-3,
        help="seconds from a frame to its action, apart from computing (default 0.002)",
    )
    other = parser.add_argument_group("network and training")
    other.add_argument(
        "--gbits",
        type=float,
        default=25,
        help="network speed of each machine in Gbit/s (default 25)",
    )
    other.add_argument(
        "--step-bytes",
        type=float,
        help="bytes of a rollout per agent step (default: computed for --core)",
    )
    other.add_argument(
        "--weight-bytes", type=float, help="bytes of the weights (default: computed for --core)"
    )
    batch, unroll = default.batch_size, default.unroll_length
    other.add_argument(
        "--batch-size",
        type=int,
        default=batch,
        help=f"streams in a learning device's update (default {batch})",
    )
    other.add_argument(
        "--unroll-length",
        type=int,
        default=unroll,
        help=f"agent steps in a rollout (default {unroll})",
    )
    other.add_argument(
        "--publish-every",
        type=int,
        default=1,
        help="updates from one broadcast of the weights to the next (default 1)",
    )
    parser.add_argument(
        "--layout",
        action="append",
        help="machines to estimate: environments=512,cores=16,gpus=1; may be repeated",
    )
    parser.add_argument("--plot", type=Path, help="PNG file for a figure")
    parser.add_argument("--json", type=Path, help="file for the parts and the rows")
    return parser


def check_numbers(options: argparse.Namespace) -> None:
    """Raise a `UserError`, naming the flag, for a number that is out of range."""
    for name, value in vars(options).items():
        if isinstance(value, (int, float)):
            may_be_none = name == "call_seconds"
            if not (0 < value < math.inf or (may_be_none and value == 0)):
                flag, least = name.replace("_", "-"), "at least" if may_be_none else "above"
                raise UserError(f"--{flag} must be {least} 0 and finite, not {value}")


def read_parts(options: argparse.Namespace) -> Parts:
    """Return the parts; rates given as options take precedence over those in the file."""
    given = {
        "environments": options.environments_rate,
        "cpu_inference": options.inference_rate,
        "cpu_update": options.update_rate,
    }
    measured = read_rates(options.parts, options.core) if options.parts else {}
    rates = measured | {name: rate for name, rate in given.items() if rate is not None}
    if missing := [name for name in given if name not in rates]:
        raise UserError(
            f"the speed of {', '.join(missing)} is not known: give --parts training.json, or "
            "--environments-rate, --inference-rate and --update-rate"
        )
    check_numbers(options)
    weight_bytes, step_bytes = weights_and_steps(options.core, options.unroll_length)
    return Parts(
        **rates,
        gpu_inference=options.gpu_inference,
        gpu_update=options.gpu_update,
        step_bytes=step_bytes if options.step_bytes is None else options.step_bytes,
        weight_bytes=weight_bytes if options.weight_bytes is None else options.weight_bytes,
        call_seconds=options.call_seconds,
        network=options.gbits * 1e9 / 8,
        batch=options.batch_size,
        unroll=options.unroll_length,
        publish_every=options.publish_every,
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    with user_input():
        parts = read_parts(options)
        layouts = [read_layout(text) for text in options.layout or ()] or list(LAYOUTS)
        rows = [(layout, estimate(parts, layout)) for layout in layouts]
        check_folder(options.json)
        check_folder(options.plot)
    Console(width=180).print(table(rows))
    print("This estimate assumes:", *(f"- {line};" for line in ASSUMPTIONS), sep="\n")
    write_json(options.json, to_json(parts, rows))
    if options.plot:
        draw(parts, layouts, options.plot)


if __name__ == "__main__":
    main()
