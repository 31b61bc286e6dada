# ruff: noqa: E402 (the import path is put right before the imports)
"""Measure the speed of training: its parts alone, the bound that they set, and whole runs.

    python benchmarks/training.py                                everything; an hour on two cores
    python benchmarks/training.py --cores rdn lstm --rounds 1    a first look
    python benchmarks/training.py --json training.json

Every measurement is a separate process. All alternate within each round, so that other load on the
machine affects all of them. The tables give medians, and medians of the rounds' ratios. A whole run
is `launch/atari.py`; its rate comes from its log: steps after the warm-up divided by their time.
Rates are agent steps/s; on Atari, an agent step is four emulator frames.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # otherwise `import training` would find this file
    from fastweights.host import sleep_while_waiting

    sleep_while_waiting()  # so that threads wait as in whole runs

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_run_options, check_run_options, last_words
from benchmarks.json_file import write_json
from benchmarks.machine import describe, in_words
from benchmarks.timing import logged_rate, median_ratio, play_rounds
from fastweights.agents import Actor, Learner, Network
from fastweights.cores import CORES
from fastweights.envs import Environments
from fastweights.host import UserError, one_line_errors, tune_allocator, with_threads
from fastweights.launch.cli.parser import Parser
from fastweights.records import read_logs
from fastweights.training import RunOptions, plan_for, preset
from fastweights.training.schedules.plan import Schedule

PARTS = ("environments", "inference", "update")
WARM_UP = 2  # updates, or calls of a part, before the measurement


def measure_parts(options: RunOptions, seconds: float) -> dict[str, float]:
    """Return agent steps/s of each part alone on all cores; call this once per process."""
    if options.tune_memory:
        tune_allocator()
    options, plan = plan_for(options)
    environments = next(plan.environments(0))
    network = Network(options.network(environments.frame_shape, environments.num_actions))
    network.to(plan.learner)
    steps = environments.num_envs  # agent steps per call: one group of environments
    emulated = _rate(random_play(environments), steps, seconds)
    actor = Actor(network, environments, device=plan.learner)
    learner = Learner(network, options.learner)
    rollout = actor.collect(options.unroll_length).rollout

    @torch.no_grad()
    def infer() -> None:
        logits = network(*actor.seen())[0].policy_logits[0]
        torch.multinomial(logits.softmax(-1), 1).cpu()

    def update() -> None:
        float(learner.update(rollout)["gradient_norm"])  # float() waits for a GPU's whole update

    with with_threads(options.actor_threads):
        inferred = _rate(infer, steps, seconds)
    parts = {
        "environments": emulated,
        "inference": inferred,
        "update": _rate(update, steps * options.unroll_length, seconds),
    }
    return parts | {"bound": bound(parts, plan.schedule)}


def random_play(environments: Environments) -> Callable[[], None]:
    """Return a function that steps new games with random actions, the same for every core.

    The cost of a step depends on the actions, so all cores must use the same actions.
    """
    random = np.random.default_rng(0)
    environments.reset()

    def step() -> None:
        environments.step(random.integers(environments.num_actions, size=environments.num_envs))

    return step


def _rate(call: Callable[[], object], steps: int, seconds: float) -> float:
    """Return the rate from the median time of a call; make calls for `seconds`, at least three."""
    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return steps / statistics.median(times)


def measure_whole(
    name: str,
    core: str,
    env: str,
    seconds: float,
    rate: float,
    checkout: Path = ROOT,
    extra: Sequence[str] = (),
) -> dict[str, float]:
    """Return the rate of a run of about `seconds`, from its log, and its peak memory in gigabytes.

    Args:
        name: the preset.
        core: the memory.
        env: the game.
        seconds: length of the run, roughly.
        rate: expected agent steps/s.
        checkout: folder that contains `launch/atari.py`.
        extra: more options of the command.
    """
    updates = WARM_UP + max(3, round(seconds * rate / _batch(name, core)))
    with whole_run(name, core, env, updates, checkout, extra) as (folder, peak):
        rate = logged_rate(read_logs(folder), WARM_UP)
    return {"whole": rate, "gigabytes": peak}


@contextmanager
def whole_run(
    name: str, core: str, env: str, updates: int, checkout: Path, extra: Sequence[str]
) -> Iterator[tuple[Path, float]]:
    """Run the command for a number of updates; yield its folder and peak memory in gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, str(checkout / "launch" / "atari.py"), "--preset", name),
            *("--core", core, "--env", env, "--savedir", folder, "--xpid", "run"),
            *("--total-steps", str(updates * _batch(name, core)), "--disable-checkpoint"),
            *("--evaluate-episodes", "0", *extra),
        ]
        peak = _run(command)
        yield Path(folder) / "run", peak


def _batch(name: str, core: str) -> int:
    """Return the number of agent steps of a preset's batch."""
    options = preset(name, core)
    return options.batch_size * options.unroll_length


def _run(command: list[str]) -> float:
    """Run a command; return its peak memory in gigabytes. Raises `UserError` if it fails."""
    with tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            _, status, used = os.wait4(run.pid, 0)
        except BaseException:  # the command must not outlive this process
            run.kill()
            run.wait()
            raise
        run.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        _refuse(run.returncode, errors.read())
    unit = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss
    return used.ru_maxrss * unit / 1e9


def said(command: list[str]) -> str:
    """Return what a command prints. Raises `UserError` with its last line if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    _refuse(done.returncode, done.stderr)
    return done.stdout


def _refuse(code: int, errors: str) -> None:
    if code:
        raise UserError(f"a run failed: {last_words(errors)}")


def measure_parts_elsewhere(
    name: str, core: str, env: str, seconds: float, threads: int = 0, device: str = "auto"
) -> dict[str, float]:
    """Call `measure_parts` in a new process; threads and device are options of training."""
    case = (name, core, env, str(seconds), str(threads), device)
    return json.loads(said([sys.executable, __file__, "--parts-of", *case]).splitlines()[-1])


def _parts_of(
    name: str, core: str, env: str, seconds: str, threads: str, device: str
) -> dict[str, float]:
    """Call `measure_parts` with arguments from the command line; runs in the new process."""
    options = replace(preset(name, core), env=env, num_threads=int(threads), device=device)
    return measure_parts(options, float(seconds))


def bound(parts: dict[str, float], schedule: Schedule) -> float:
    """Return the rate at which the parts would run if nothing else took time.

    In lockstep, the parts alternate. Otherwise they run in parallel and the slowest is the limit.
    """
    rates = [parts[part] for part in PARTS]
    return 1 / sum(1 / rate for rate in rates) if schedule == "lockstep" else min(rates)


def measure(
    cases: list[tuple[str, str]], env: str, rounds: int, seconds: float
) -> list[dict[str, float | str]]:
    """Return one row per (preset, core): medians over the rounds."""
    turns = {" ".join(case): partial(_measure_both, *case, env, seconds) for case in cases}
    found = play_rounds(turns, rounds, lambda sample: f"{sample['whole']:.0f}")
    rows = []
    for case, samples in found.items():
        name, core = case.split()
        row = {key: statistics.median(s[key] for s in samples) for key in samples[0]}
        share = median_ratio([s["whole"] for s in samples], [s["bound"] for s in samples])
        extra = {"preset": name, "core": core, "share_of_bound": share}
        rows.append(extra | row | {"rounds": samples})
    return rows


def _measure_both(name: str, core: str, env: str, seconds: float) -> dict[str, float]:
    parts = measure_parts_elsewhere(name, core, env, seconds / 3)
    return parts | measure_whole(name, core, env, seconds, parts["bound"])


def show(rows: list[dict], described: dict) -> None:
    title = in_words(described)
    table = Table(title=f"agent steps/s\n{title}")
    columns = ("preset", "core", *PARTS, "bound", "run", "run / bound", "against lstm", "peak GB")
    for column in columns:
        table.add_column(column, justify="left" if column in ("preset", "core") else "right")
    wholes = {(row["preset"], row["core"]): [s["whole"] for s in row["rounds"]] for row in rows}
    for row in rows:
        mine, lstm = wholes[row["preset"], row["core"]], wholes.get((row["preset"], "lstm"))
        table.add_row(
            *(row["preset"], row["core"]),
            *(f"{row[part]:,.0f}" for part in PARTS),
            *(f"{row['bound']:,.0f}", f"{row['whole']:,.0f}", f"{row['share_of_bound']:.0%}"),
            f"{median_ratio(mine, lstm) - 1:+.1%}" if lstm else "",
            f"{row['gigabytes']:.2f}",
        )
    Console(width=120).print(table)
    for (name, core), mine in wholes.items():
        if name == "paper" and ("plain", core) in wholes:
            times = median_ratio(mine, wholes["plain", core])
            print(f"{core}: {times:.1f} times as fast as with --preset plain")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(__doc__)
    parser.add_argument(
        "--cores", nargs="+", choices=list(CORES), default=list(CORES), metavar="CORE",
        help="cores to run with the default preset (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--plain", nargs="*", choices=list(CORES), default=["rdn", "lstm"],
        help="cores to run with --preset plain, too (default: rdn lstm)",
    )  # fmt: skip
    length = "length of a whole run, and of its parts together,"
    add_run_options(parser, "measurements of each case", length, 15.0)
    parser.add_argument("--parts-of", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    check_run_options(options)
    if options.parts_of:
        print(json.dumps(_parts_of(*options.parts_of)))
        return
    cases = [("paper", core) for core in options.cores]
    cases += [("plain", core) for core in options.plain]
    described = describe()
    rows = measure(cases, options.env, options.rounds, options.seconds)
    show(rows, described)
    write_json(options.json, {"machine": described, "command": sys.argv[1:], "rows": rows})


if __name__ == "__main__":
    main()
