"""Compare the training speed and start-up time of this checkout with those of another.

    git worktree add ../before COMMIT
    python benchmarks/checkouts.py --before ../before                  five minutes on two cores
    python benchmarks/checkouts.py --before ../before --presets paper published --json result.json

Training runs `launch/atari.py` of each checkout with the same options. Its speed is in agent
steps/s, from the log after a warm-up. Start-up is the time that `--help` and `--list-cores` take,
in seconds. Every measurement is a separate process, and the checkouts alternate. The table gives
medians, and the median over rounds of the ratio of this checkout to the other. An improvement is a
ratio above 1 for training, or below 1 for start-up.

With `--updates N` the first N updates of each preset are compared instead, as `launch/replay.py`
does: the same rollouts and weights have the same hashes. These runs use float32 and one thread.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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
from benchmarks.training import measure_whole, said, whole_run
from fastweights.cores import CORES
from fastweights.host import UserError, check_range, one_line_errors, user_input
from fastweights.launch.cli.parser import Parser
from fastweights.training.hashes import UPDATES, read_hashes
from fastweights.training.presets import PRESETS

ROOT = Path(__file__).parents[1]
STARTS = ("--help", "--list-cores")
LIKELY = 400.0  # agent steps/s: a guess that determines the number of steps in --seconds


def start(checkout: Path, flag: str) -> float:
    """Return the seconds until the command has exited. Raises `UserError` if it fails."""
    began = time.perf_counter()
    said([sys.executable, str(checkout / "launch" / "atari.py"), flag])
    return time.perf_counter() - began


def steps_per_second(checkout: Path, preset: str, core: str, env: str, seconds: float) -> float:
    """Return the agent steps/s of a run of about `seconds`. Raises `UserError` if it fails."""
    return measure_whole(preset, core, env, seconds, LIKELY, checkout)["whole"]


def first_hashes(checkout: Path, preset: str, core: str, env: str, updates: int) -> list[dict]:
    """Return a run's hashes of rollout and weights, one dict per update.

    Raises `UserError` if the run fails or records none.
    """
    exact = ("--precision", "float32", "--num-threads", "1")
    with whole_run(preset, core, env, updates, checkout, exact) as (folder, _):
        recorded = read_hashes(folder).updates
    return [{"rollout": update.rollout, "weights": update.weights} for update in recorded]


def compare_hashes(options: argparse.Namespace) -> Iterator[dict]:
    """Yield the hashes of each preset's first updates, and whether both checkouts' are equal."""
    for preset in options.presets:
        case = (preset, options.core, options.env, options.updates)
        before, after = (first_hashes(path, *case) for path in (options.before, ROOT))
        identical = len(after) == options.updates and before == after
        yield {"preset": preset, "identical": identical, "before": before, "after": after}


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """Return one row per measurement: both checkouts' samples, medians and median ratio."""
    checkouts = {"before": options.before.resolve(), "after": ROOT}
    works: dict[str, Callable[[Path], float]] = {
        f"{preset}, agent steps/s": partial(
            steps_per_second, preset=preset, core=options.core, env=options.env,
            seconds=options.seconds,
        )
        for preset in options.presets
    }  # fmt: skip
    works |= {f"{flag}, seconds": partial(start, flag=flag) for flag in STARTS}
    turns = {
        (work, name): partial(run, path)
        for work, run in works.items()
        for name, path in checkouts.items()
    }
    found = play_rounds(turns, options.rounds, lambda sample: f"{sample:.4g}")
    rows = []
    for work in works:
        before, after = found[work, "before"], found[work, "after"]
        told = {"before": median(before), "after": median(after)}
        rows.append(
            {"work": work, **told, "ratio": median_ratio(after, before)}
            | {"samples": {"before": before, "after": after}}
        )
    return rows


def show(rows: Sequence[dict], described: dict) -> None:
    """Print the table."""
    table = Table("work", title=in_words(described))
    for column in ("before", "after", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        numbers = (f"{row[name]:,.4g}" for name in ("before", "after"))
        table.add_row(row["work"], *numbers, f"{row['ratio']:.2f}")
    Console(width=100).print(table)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="folder of the other checkout")
    parser.add_argument(
        "--presets", nargs="+", choices=list(PRESETS), default=["paper"], metavar="PRESET",
        help="presets to train with; both checkouts must have them (default paper)",
    )  # fmt: skip
    parser.add_argument("--core", choices=list(CORES), default="rdn", help="memory (default rdn)")
    parser.add_argument(
        "--updates", type=int, default=0, metavar="N",
        help=f"compare hashes of each preset's first N updates (up to {UPDATES}), not speed",
    )  # fmt: skip
    add_run_options(parser, "measurements of each", "length of a training run", 15.0)
    options = parser.parse_args(arguments)
    check_run_options(options)
    if not (options.before / "launch" / "atari.py").exists():
        raise UserError(f"--before {options.before}: the folder has no launch/atari.py")
    with user_input():  # a run records no more
        check_range("updates", options.updates, f"[0, {UPDATES}]")
    described = describe()
    if options.updates:
        rows = list(compare_hashes(options))
        for row in rows:
            verdict = "identical" if row["identical"] else "NOT identical"
            print(f"{row['preset']}: first updates ({options.updates}) {verdict}")
    else:
        rows = measure(options)
        show(rows, described)
    write_json(options.json, {"machine": described, "command": sys.argv[1:], "rows": rows})


if __name__ == "__main__":
    main()
