"""Which memories remember: every core on the T-maze, several seeds, one table and one picture.

    python launch/t_maze.py                     all cores, three seeds
    python launch/t_maze.py --cores rdn lstm --seeds 1 2 --out /tmp/maze

Each run is `python launch/atari.py --preset maze --core CORE --seed SEED`, on one thread, as many
at once as there are processors. Those that are in the folder are kept, and those cut off go on;
one with other options than the preset's is refused.
Writes results.json (options and every test episode's return), table.md and learning_curves.png.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

if __name__ == "__main__":  # the code beside this file, whichever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from launch.waiting import sleep_while_waiting

    sleep_while_waiting()  # torch is not loaded yet

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from cores import CORES
from launch.atomic_files import replacing, write_bytes
from launch.core_sizes import is_named_by_size
from launch.devices import processors
from launch.failures import UserError, one_line_errors, user_input
from launch.log_table import read_logs
from launch.options import RunOptions, changes, check, preset
from launch.palette import COLOURS
from launch.parser import Parser, count
from launch.run_folder import read_meta
from launch.sequence_jobs import STOPPED, Job, SideBySide, report
from launch.stopping import Interrupted

SCRIPT = Path(__file__).resolve().parent / "atari.py"
EVALUATE = SCRIPT.with_name("evaluate.py")
DASHES = ("-", "--", ":")  # for more cores than colours


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    default = [name for name in CORES if not is_named_by_size(name)]
    named = {"metavar": "CORE", "help": f"default: {' '.join(default)}"}
    parser.add_argument("--cores", nargs="+", default=default, **named)
    seeds = {"type": count, "default": [1, 2, 3], "metavar": "SEED"}
    parser.add_argument("--seeds", nargs="+", help="of each core: 1 2 3", **seeds)
    steps = {"type": count, "metavar": "STEPS", "help": "agent steps of each run: the preset's"}
    parser.add_argument("--total-steps", **steps)
    runs = Path("runs") / "t_maze"
    parser.add_argument("--runs", type=Path, default=runs, help=f"folder of the runs: {runs}")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the table, the results and the picture: that of the runs",
    )
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(words)
    runs, out = options.runs.resolve(), (options.out or options.runs).resolve()
    pairs = [(core, seed) for core in options.cores for seed in options.seeds]
    if len(set(pairs)) < len(pairs):
        raise UserError("--cores and --seeds take each of theirs once")
    with user_input():
        wanted = [run_of(*pair, runs, options.total_steps) for pair in pairs]
    for one in wanted:
        check_same(one)
    for folder in (runs, out):
        folder.mkdir(parents=True, exist_ok=True)
    side_by_side = SideBySide(processors(), runs, Console())
    try:
        side_by_side.run([job(one) for one in wanted])
    except Interrupted as interrupted:
        print(STOPPED)
        return 128 + interrupted.signal_number
    results = [result(one) for one in wanted if is_finished(folder_of(one))]
    if results:
        write_bytes(out / "results.json", f"{json.dumps(results, indent=1)}\n".encode())
        rows = table(results)
        write_bytes(out / "table.md", rows.encode())
        draw(results, runs, out / "learning_curves.png")
        print(rows)
    return report(side_by_side.failures, runs)


def run_of(core: str, seed: int, runs: Path, total_steps: int | None = None) -> RunOptions:
    """One run of the table, in `runs`. Raises a one-line `ValueError` for numbers of no use."""
    options = replace(preset("maze", core), seed=seed, savedir=runs, xpid=f"{core}-{seed}")
    if total_steps is not None:
        options = replace(options, learner=replace(options.learner, total_steps=total_steps))
    check(options)
    return options


def folder_of(run: RunOptions) -> Path:
    return run.savedir / str(run.xpid)


def check_same(run: RunOptions) -> None:
    """Raises a one-line `UserError` where the run's folder holds one of other options."""
    folder = folder_of(run)
    if not (folder / "meta.json").exists():
        return
    try:
        stored = RunOptions.from_dict(read_meta(folder).get("args", {}))
    except ValueError as error:
        raise UserError(f"{folder} is no run of this table: {error}") from error
    if changed := changes(stored, run):
        raise UserError(
            f"{folder} holds another run than the table's, which has {', '.join(changed)}: "
            "move it away, or name another --runs"
        )


def is_trained(folder: Path) -> bool:
    """Whether a run is there that came to its end."""
    return (folder / "meta.json").exists() and read_meta(folder)["successful"]


def is_finished(folder: Path) -> bool:
    """Whether the trained agent's test games are there, too."""
    return is_trained(folder) and bool(played_after_training(folder))


def played_after_training(folder: Path) -> list[Path]:
    """Files of test games, the newest last; those before training are of agent step 0."""
    found = sorted((folder / "evaluations").glob("step_*.json"))
    return [path for path in found if not path.name.startswith(f"step_{0:012d}_")]


def job(run: RunOptions) -> Job:
    """What trains one agent, or goes on with it; nothing where it has been trained."""
    folder = folder_of(run)

    def command() -> list[str] | None:
        if is_finished(folder):
            return None
        if is_trained(folder):  # and was stopped in its test games
            games = ["--episodes", str(run.evaluate_episodes)]
            games += ["--repeats", "1", "--protocol", "trained", "--action-mode", "sampled"]
            return [sys.executable, str(EVALUATE), str(folder), *games]
        options = ["--preset", "maze", "--core", run.core, "--seed", str(run.seed)]
        options += ["--total-steps", str(run.learner.total_steps)]
        options += ["--savedir", str(run.savedir), "--xpid", folder.name]
        begun = (folder / "meta.json").exists()
        asked = ["--resume", str(folder)] if begun else options
        return [sys.executable, str(SCRIPT), "--num-threads", "1", *asked]

    return Job(folder.name, command)


def result(run: RunOptions) -> dict:
    """What a finished run's test episodes came to."""
    folder = folder_of(run)
    meta = read_meta(folder)
    evaluation = json.loads(played_after_training(folder)[-1].read_text())
    return {
        "core": run.core,
        "seed": run.seed,
        "agent_steps": evaluation["agent_steps"],
        "returns": [round(e["episode_return"], 3) for e in evaluation["episodes"]],
        "options": meta["args"] | {"savedir": "runs"},
        "git": meta["git"],
        "versions": meta["versions"],
        "machine": meta["machine"],
    }


def table(results: list[dict]) -> str:
    """Markdown: share of test games won, each seed and their mean."""
    seeds = sorted({result["seed"] for result in results})
    head = ["core", *(f"seed {seed}" for seed in seeds), "mean ± std"]
    lines = [head, ["---"] * len(head)]
    for core in dict.fromkeys(result["core"] for result in results):
        won = {one["seed"]: won_share(one) for one in results if one["core"] == core}
        cells = [f"{100 * won[seed]:.1f} %" if seed in won else "" for seed in seeds]
        shares = won.values()
        spread = f"{100 * fmean(shares):.1f} ± {100 * pstdev(shares):.1f} %"
        lines.append([f"`{core}`", *cells, spread])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def won_share(result: dict) -> float:
    """A game's return is above zero exactly where the agent turned to the side of the cue."""
    return fmean(one > 0 for one in result["returns"])


def draw(results: list[dict], runs: Path, path: Path) -> None:
    """One line a core: the mean over seeds of the last 100 games' return.

    Seeds are a band, where there are not so many cores that bands would hide each other.
    """
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    by_core: dict[str, list[dict]] = {}
    for result in results:
        by_core.setdefault(result["core"], []).append(result)
    for number, (core, seeds) in enumerate(by_core.items()):
        colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS)]
        logs = [read_logs(runs / f"{core}-{result['seed']}") for result in seeds]
        curves = [
            [
                (step, mean)
                for step, mean in zip(log["step"], log["recent_full_game_return"], strict=True)
                if mean is not None
            ]
            for log in logs
        ]
        shared = min(map(len, curves))
        steps = [step for step, _ in curves[0][-shared:]]
        rows = [[curve[-shared:][i][1] for curve in curves] for i in range(shared)]
        if len(by_core) <= len(COLOURS):
            lowest, highest = list(map(min, rows)), list(map(max, rows))
            axes.fill_between(steps, lowest, highest, color=colour, alpha=0.15)
        axes.plot(steps, list(map(fmean, rows)), color=colour, linestyle=dashes, label=core)
    axes.set_title("T-maze, corridor of 10: 1 is a memory, 0 is chance")
    axes.set_xlabel("agent steps")
    axes.set_ylabel("return, mean of the last 100 training games")
    axes.set_ylim(-1, 1.05)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format="png")


if __name__ == "__main__":
    sys.exit(main())
