# ruff: noqa: E402 (the import path is put right before the imports)
"""Compare wait policies of OpenMP threads, on an idle machine and beside other programs.

    python benchmarks/shared_machine.py                     loop and quick; ten minutes on two cores
    python benchmarks/shared_machine.py --works paper --rounds 2 --out results --name zen5
    python benchmarks/shared_machine.py --policies torch spin-10000 passive --competitors 0 1 2

Works (workloads): `loop` is a small RDN, forward and backward over an unroll of `quick` (passes/s).
`quick` and `paper` are runs of `launch/atari.py` with these presets (agent steps/s, from their
logs). Policies: `torch` is the default of PyTorch's OpenMP; on Linux this is GCC's, which spins
300,000 times before it sleeps. `spin-N` spins N times; `passive` sleeps at once. `one-thread` uses
one thread, the others all cores. Each competing process keeps one core busy.

Every measurement is a separate process; all alternate within each round. `--out FOLDER` stores each
result in FOLDER/NAME.json immediately, and the same command continues an interrupted benchmark.
FOLDER/README.md shows the tables of all JSON files in the folder.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

import torch

from benchmarks.arguments import check_above_zero, check_game, last_words
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe, in_words
from benchmarks.timing import logged_rate, median_ratio
from fastweights.agents import Network
from fastweights.host import UserError, one_line_errors, processors, read_object, write_bytes
from fastweights.host.waiting import WAITING_VARIABLES
from fastweights.launch.cli.parser import Parser
from fastweights.records import read_logs
from fastweights.training import preset

PRESETS = ("quick", "paper")
UNITS = {"loop": "passes/s", **dict.fromkeys(PRESETS, "agent steps/s")}
COMPARED_WITH = "torch"
# GCC's default, set explicitly so that our commands do not choose another value.
POLICIES = {
    COMPARED_WITH: {"GOMP_SPINCOUNT": "300000"},
    **{f"spin-{count}": {"GOMP_SPINCOUNT": str(count)} for count in (100_000, 10_000, 1_000, 100)},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one-thread": {"OMP_WAIT_POLICY": "PASSIVE"},
}
ATARI = (4, 84, 84), 18  # shape of a frame, number of actions
STREAMS = 8  # parallel sequences in `loop`
BUSY = "import time\nwhile time.monotonic() < {until}: pass"
LONGEST = 900.0  # seconds until a measurement is abandoned
WARM_UP = 1  # updates before the rate is measured

MACHINE = ("processor", "vectors", "cores", "torch")  # entries that must stay the same
CASE = ("work", "competitors", "policy")
Case = tuple[str, int, str]  # work, number of competitors, policy
Rates = dict[Case, list[float]]


def measure(case: Case, game: str, seconds: float) -> float:
    """Return the rate of a work over about `seconds`, or over one update if it takes longer."""
    work, busy, policy = case
    threads = 1 if policy == "one-thread" else 0
    variables = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
    variables |= POLICIES[policy]
    with competitors(busy):
        if work == "loop":
            return _loop_elsewhere(threads or processors(), seconds, variables)
        return _run(work, threads, game, seconds, variables)


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Keep `count` cores busy inside the block; all processes are killed when it ends."""
    busy = BUSY.format(until=time.monotonic() + LONGEST)
    running = [subprocess.Popen([sys.executable, "-S", "-c", busy]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _loop_elsewhere(threads: int, seconds: float, variables: Mapping[str, str]) -> float:
    command = [sys.executable, __file__, "--loop", str(threads), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise UserError(f"the loop failed: {last_words(done.stderr)}")
    return float(done.stdout)


def loop(threads: int, seconds: float) -> float:
    """Return passes/s (forward and backward) of a small RDN, after two warm-up passes."""
    torch.set_num_threads(threads)
    options = replace(preset("quick", "rdn"), precision="float32")
    core = Network(options.network(*ATARI)).core
    x = torch.randn(options.unroll_length, STREAMS, core.input_size, requires_grad=True)
    is_first = torch.zeros(options.unroll_length, STREAMS, dtype=torch.bool)

    def forward_and_backward() -> None:
        y, _ = core.unroll(x, core.initial_state(STREAMS), is_first)
        y.square().mean().backward()

    for _ in range(2):
        forward_and_backward()
    began, passes = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        forward_and_backward()
        passes += 1
    return passes / (time.perf_counter() - began)


def _run(name: str, threads: int, game: str, seconds: float, variables: Mapping[str, str]) -> float:
    """Return agent steps/s of a training run; kill the run once its log covers `seconds`."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        command = [
            *(sys.executable, str(ROOT / "launch" / "atari.py"), "--preset", name),
            *("--env", game, "--num-threads", str(threads), "--savedir", folder, "--xpid", "run"),
            *("--evaluate-episodes", "0", "--disable-checkpoint"),
        ]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=variables)
        try:
            return _rate_of(run, Path(folder) / "run", seconds)
        except UserError as error:
            errors.seek(0)
            raise UserError(f"{error}: {last_words(errors.read())}") from error
        finally:
            run.kill()
            run.wait()


def _rate_of(run: subprocess.Popen, folder: Path, seconds: float) -> float:
    until = time.monotonic() + LONGEST
    while run.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
        logs = read_logs(folder) if (folder / "logs.csv").exists() else {}
        times = logs.get("_time", [])
        if len(times) > WARM_UP and times[-1] - times[WARM_UP - 1] >= seconds:
            return logged_rate(logs, WARM_UP)
    raise UserError(
        f"a run ended, or took {LONGEST:.0f} seconds, before enough of it could be timed"
    )


def play(
    cases: Sequence[Case], options: argparse.Namespace, rates: Rates, path: Path | None
) -> None:
    """Make the measurements missing in `rates`; store each. Every other round is reversed."""
    setting = _setting(path, options)
    for number in range(options.rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            if len(rates.setdefault(case, [])) > number:
                continue
            rates[case].append(measure(case, options.env, options.seconds))
            print(f"round {number + 1}: {case} {rates[case][-1]:,.1f}", file=sys.stderr, flush=True)
            write_json(path, content(setting, rates))
    print(table(content(setting, rates)))


def _setting(path: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    """Return the machine before the first round, the game, and the seconds of a measurement.

    Raises `UserError` if the file at `path` has others. Older files have no game and no seconds.
    """
    now = {"machine": describe(), "env": options.env, "seconds": options.seconds}
    before = {name: value for name, value in _stored(path).items() if name != "rows"} or now
    wanted = _compared(now)
    if changed := [
        f"{name} {value}" for name, value in _compared(before).items() if value != wanted[name]
    ]:
        told = ", ".join(changed)
        raise UserError(f"{path} was measured with {told}; choose another file with --name")
    return before


def _compared(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be equal for measurements to be continued."""
    machine = {name: setting["machine"][name] for name in MACHINE}
    return machine | {name: setting[name] for name in ("env", "seconds") if name in setting}


def content(setting: Mapping[str, Any], rates: Rates) -> dict[str, Any]:
    """Return the content of a machine's JSON file."""
    rows = [dict(zip(CASE, case, strict=True)) | {"rates": r} for case, r in rates.items()]
    return {**setting, "rows": rows}


def _stored(path: Path | None) -> dict[str, Any]:
    """Return the content of a machine's JSON file; no rows if there is no file.

    Raises `UserError` for a file with other content.
    """
    if not path or not path.exists():
        return {"rows": []}
    try:
        stored = read_object(path)
        _compared(stored)
        table(stored)  # fails for rows of another benchmark
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no file of this benchmark; choose another --name") from error
    return stored


def _rates(stored: Mapping[str, Any]) -> Rates:
    return {tuple(row[name] for name in CASE): row["rates"] for row in stored["rows"]}


def table(stored: Mapping[str, Any]) -> str:
    """Return a Markdown table: medians over rounds, and median ratios to the policy `torch`."""
    rates = _rates(stored)
    policies = [name for name in POLICIES if any(case[2] == name for case in rates)]
    heads = ("work", "other programs", *(f"`{name}`" for name in policies))
    lines = [f"| {' | '.join(heads)} |", f"|---|---:|{'---:|' * len(policies)}"]
    works = [*UNITS]
    for work, busy in sorted({case[:2] for case in rates}, key=lambda of: (works.index(of[0]), of)):
        cells = (_cell(rates, (work, busy), policy) for policy in policies)
        lines.append(f"| `{work}`, {UNITS[work]} | {busy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(rates: Rates, of: tuple[str, int], policy: str) -> str:
    mine, torch_s = (rates.get((*of, name), []) for name in (policy, COMPARED_WITH))
    if not mine:
        return ""
    median = statistics.median(mine)
    shown = f"{median:,.0f}" if median >= 100 else f"{median:.1f}"
    if policy == COMPARED_WITH or len(mine) != len(torch_s):
        return shown
    return f"{shown} ({median_ratio(mine, torch_s):.2f}×)"


INTRODUCTION = """# Speed on a shared machine, by how threads wait

Made by `python benchmarks/shared_machine.py --out docs/results/shared_machine --name NAME`. It
measures into `NAME.json` and rewrites this page from the JSON files in its folder. [Shared
machines](../../shared_machines.md) recommends settings.

Figures are medians of all rounds; the number in brackets is the median of the rounds' ratios to
`torch`. `torch` is the default of PyTorch's OpenMP, which spins 300,000 times before it sleeps.
`spin-N` spins N times (`GOMP_SPINCOUNT=N`), and `passive` sleeps at once
(`OMP_WAIT_POLICY=PASSIVE`). `one-thread` uses one thread; the others use all cores. Each of the
other programs keeps one core busy. `loop` is a small RDN, forward and backward over an unroll of
`quick`. `quick` and `paper` are whole training runs with these presets.
"""


def page(folder: Path) -> str:
    """Return the folder's README, with a table for each JSON file of this benchmark."""
    parts = [INTRODUCTION]
    for path in sorted(folder.glob("*.json")):
        with suppress(UserError, OSError):  # another program's file, or a folder
            parts.append(_section(path.stem, _stored(path)))
    return "\n".join(parts)


def _section(name: str, stored: Mapping[str, Any]) -> str:
    said = in_words(stored["machine"])
    rounds = sorted({len(row["rates"]) for row in stored["rows"]}) or [0]
    told = " to ".join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))
    made = textwrap.fill(f"Rounds: {told}. Machine: {said}.", 100, break_on_hyphens=False)
    return f"## {name}\n\n{made}\n\n{table(stored)}\n"


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument(
        "--works", nargs="+", choices=list(UNITS), default=["loop", "quick"], metavar="WORK",
        help="works to measure: loop, quick, paper (default: loop quick)",
    )  # fmt: skip
    parser.add_argument(
        "--policies", nargs="+", choices=list(POLICIES), metavar="POLICY",
        default=[COMPARED_WITH, "spin-1000", "spin-100", "passive", "one-thread"],
        help=f"policies to compare: {', '.join(POLICIES)} "
        "(default: torch spin-1000 spin-100 passive one-thread)",
    )  # fmt: skip
    parser.add_argument(
        "--competitors", nargs="+", type=int, choices=range(65), default=[0, 1], metavar="COUNT",
        help="numbers of busy processes (default: 0 1)",
    )  # fmt: skip
    parser.add_argument("--env", default="Qbert", help="game of the runs (default Qbert)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="measurements of each case (default 3)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="length of a measurement in seconds (default 3)"
    )
    parser.add_argument("--out", type=Path, help="folder for NAME.json and README.md")
    parser.add_argument(
        "--name", default="machine", help="name of the JSON file, without .json (default machine)"
    )
    parser.add_argument("--loop", nargs=2, help=argparse.SUPPRESS)
    return parser


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    if options.loop:
        print(loop(int(options.loop[0]), float(options.loop[1])))
        return
    check_above_zero(options, "rounds", "seconds")
    check_game(options.env)
    path = None
    if options.out:
        if not options.out.is_dir():
            raise UserError(f"--out {options.out}: no such folder; create it first")
        if Path(options.name).name != options.name:
            raise UserError(f"--name {options.name} must be the name of a file, without a folder")
        path = options.out / f"{options.name}.json"
        check_folder(path)
    cases = [
        (work, busy, policy)
        for work in options.works
        for busy in options.competitors
        for policy in options.policies
    ]
    play(cases, options, _rates(_stored(path)), path)
    if path:
        write_bytes(options.out / "README.md", page(options.out).encode())


if __name__ == "__main__":
    main()
