"""Compare the training speed of `launch/atari.py` with several settings on this machine.

    python benchmarks/settings.py --setting='--precision float32' --setting='--precision bfloat16'
    python benchmarks/settings.py --preset quick --setting= --setting='--num-threads 1'

A setting is any options of `launch/atari.py`; an empty one is the preset itself. Every measurement
is a separate process, and the settings alternate. Speed is in agent steps/s, from the log after a
warm-up. The table gives medians, and the median over rounds of the ratio to the first setting.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_run_options, check_run_options
from benchmarks.json_file import write_json
from benchmarks.machine import describe, in_words
from benchmarks.timing import median_ratio, play_rounds
from benchmarks.training import measure_whole
from fastweights.cores import CORES
from fastweights.host import UserError, one_line_errors
from fastweights.launch.cli.parser import Parser
from fastweights.training.presets import PRESETS

LIKELY = 400.0  # agent steps/s: a guess that determines the number of steps in --seconds
_AS_PRESET = "(the preset)"


def measure(options: argparse.Namespace, settings: dict[str, list[str]]) -> list[dict[str, object]]:
    """Return one row per setting: its samples, median, peak memory and ratio to the first.

    `settings`: each setting as typed, and its words.
    """
    turns = {
        setting or _AS_PRESET: partial(
            measure_whole, options.preset, options.core, options.env, options.seconds, LIKELY,
            extra=words,
        )
        for setting, words in settings.items()
    }  # fmt: skip
    found = play_rounds(turns, options.rounds, lambda sample: f"{sample['whole']:.0f}")
    rates = {name: [sample["whole"] for sample in samples] for name, samples in found.items()}
    first = next(iter(rates.values()))
    return [
        {"setting": name, "agent_steps_per_second": median(mine)}
        | {"ratio": median_ratio(mine, first), "samples": mine}
        | {"gigabytes": max(sample["gigabytes"] for sample in found[name])}
        for name, mine in rates.items()
    ]


def show(rows: Sequence[dict], title: str) -> None:
    """Print the table."""
    table = Table("setting", title=title)
    for column in ("agent steps/s", "ratio", "peak GB"):
        table.add_column(column, justify="right")
    for row in rows:
        rate, ratio = f"{row['agent_steps_per_second']:,.0f}", f"{row['ratio']:.2f}"
        table.add_row(row["setting"], rate, ratio, f"{row['gigabytes']:.2f}")
    Console(width=100).print(table)


def _words(setting: str) -> list[str]:
    try:
        return shlex.split(setting)
    except ValueError as error:
        raise UserError(f"--setting={setting!r}: {error}") from error


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(__doc__)
    parser.add_argument(
        "--setting", action="append", default=[], metavar="'OPTIONS'",
        help="options of launch/atari.py, in quotes after an equals sign; repeat for each setting",
    )  # fmt: skip
    parser.add_argument(
        "--preset", choices=list(PRESETS), default="paper", metavar="PRESET",
        help="preset that the settings change (default paper)",
    )  # fmt: skip
    parser.add_argument("--core", choices=list(CORES), default="rdn", help="memory (default rdn)")
    add_run_options(parser, "measurements of each", "approximate length of a training run", 15.0)
    options = parser.parse_args(arguments)
    check_run_options(options)
    if len(set(options.setting)) < max(2, len(options.setting)):
        raise UserError("give at least two different settings, such as --setting='--num-threads 1'")
    settings = {setting: _words(setting) for setting in options.setting}
    described = describe()
    rows = measure(options, settings)
    show(rows, f"{options.preset}, {options.core}\n{in_words(described)}")
    write_json(options.json, {"machine": described, "command": sys.argv[1:], "rows": rows})


if __name__ == "__main__":
    main()
