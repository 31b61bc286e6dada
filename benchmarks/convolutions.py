"""Compare the speed of our image stem with that of PyTorch's convolutions and pooling on a CPU.

    python benchmarks/convolutions.py                          print a table; two minutes
    python benchmarks/convolutions.py --json convolutions.json

Times are milliseconds per batch of frames: 32 frames forward, as in acting, and 200 frames forward
and backward, as in a micro-batch of learning. PyTorch computes in float32 with channels last, its
fastest layout. Both alternate. The whole stem is also timed in bfloat16 if `--precision auto`
chooses it on this processor. The small stem uses the precision that the presets `quick` and
`afternoon` choose (their stem also centres its filters); only its pixel conversion is ours.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
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
from torch import Tensor, nn

from benchmarks.json_file import write_json
from benchmarks.timing import Run, add_options, median_ratio, take_turns, use_options
from fastweights import kernels
from fastweights.agents import PooledConv2d, ResidualUnit, build_stem
from fastweights.host import choose_precision, one_line_errors, tune_allocator, user_input
from fastweights.launch.cli.parser import Parser

FRAMES = {"acting": 32, "learning": 200}
FRAME = (4, 84, 84)
WHOLE = "the whole stem"
SMALL = "the small stem, shallow_norm"
Key = tuple[str, str, str]  # layer, "acting" or "learning", "ours" or "pytorch" or "bfloat16"


def layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Return each kind of layer in the resnet stem, and both stems, with the input shape."""
    return {
        "84 x 84 pixels, 4 to 16 channels, pooled": (PooledConv2d(4, 16), FRAME),
        "42 x 42, unit of 16": (ResidualUnit(16), (16, 42, 42)),
        "42 x 42, 16 to 32, pooled": (PooledConv2d(16, 32), (16, 42, 42)),
        "21 x 21, unit of 32": (ResidualUnit(32), (32, 21, 21)),
        "21 x 21, 32 to 32, pooled": (PooledConv2d(32, 32), (32, 21, 21)),
        "11 x 11, unit of 32": (ResidualUnit(32), (32, 11, 11)),
        SMALL: (build_stem("shallow_norm", FRAME, precision=_precision()), FRAME),
        WHOLE: (build_stem("resnet", FRAME), FRAME),
    }


def _precision() -> str:
    """Return the precision of convolutions in training on this processor."""
    with user_input():
        return choose_precision("auto", torch.device("cpu"))


def contenders() -> dict[Key, Run]:
    runs: dict[Key, Run] = {}
    for name, (layer, size) in layers().items():
        layer.to(memory_format=torch.channels_last)
        whose = {"ours": (layer, "auto"), "pytorch": (layer, "reference")}
        if name == WHOLE and _precision() == "bfloat16":
            whose["bfloat16"] = build_stem("resnet", FRAME, precision="bfloat16"), "auto"
        for what, count in FRAMES.items():
            x = _pictures(count, size)
            for by, (module, backend) in whose.items():
                call = _act if what == "acting" else _learn
                runs[name, what, by] = partial(call, module, x, backend)
    return runs


def _pictures(count: int, size: tuple[int, ...]) -> Tensor:
    if size == FRAME:
        return torch.randint(0, 256, (count, *size), dtype=torch.uint8)
    x = torch.randn(count, *size).contiguous(memory_format=torch.channels_last)
    return x.requires_grad_()


@torch.no_grad()
def _act(layer: nn.Module, x: Tensor, backend: str) -> None:
    with kernels.backend(backend):
        layer(x)


def _learn(layer: nn.Module, x: Tensor, backend: str) -> None:
    wanted = [*layer.parameters(), *([x] if x.requires_grad else [])]
    with kernels.backend(backend):
        y = layer(x)
        torch.autograd.grad(y, wanted, torch.ones_like(y))


def rows(samples: dict[Key, list[float]]) -> list[dict[str, Any]]:
    """Return one row per layer and kind of call; samples are in seconds."""
    found = []
    for name, what in dict.fromkeys(key[:2] for key in samples):
        taken = {by: times for (*key, by), times in samples.items() if key == [name, what]}
        slower = {by: median_ratio(taken[by], taken["ours"]) for by in taken if by != "ours"}
        found.append(
            {
                "layer": name,
                "call": what,
                "frames": FRAMES[what],
                "milliseconds": {by: 1e3 * statistics.median(taken[by]) for by in taken},
                "slower": slower,
                "seconds": taken,
            }
        )
    return found


def _table(found: list[dict[str, Any]]) -> Table:
    by = list(found[-1]["milliseconds"])  # only the whole stem is timed in every way
    table = Table(title="Milliseconds (and as a multiple of our kernels' time)")
    for name in ("layer", "call", "frames", *by):
        table.add_column(name, justify="left" if name in ("layer", "call") else "right")
    for row in found:
        taken, slower = row["milliseconds"], row["slower"]
        shown = (_shown(taken.get(each), slower.get(each)) for each in by)
        table.add_row(row["layer"], row["call"], str(row["frames"]), *shown)
    return table


def _shown(milliseconds: float | None, times: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds:.1f}" + (f" ({times:.1f})" if times else "")


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    add_options(
        parser, "measurements of each layer", "for the whole benchmark", 120.0, devices=("cpu",)
    )
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    machine = use_options(options := parser().parse_args(words))
    tune_allocator()  # training runs do so, too
    torch.manual_seed(0)
    samples = take_turns(contenders(), options.rounds, options.seconds, "cpu")
    found = rows(samples)
    Console(width=120).print(_table(found))
    write_json(options.json, {"machine": machine, "rows": found})


if __name__ == "__main__":
    main()
