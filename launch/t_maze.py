"""Which memories remember: every core on the T-maze, several seeds, one table and one picture.

    python launch/t_maze.py                     all cores, three seeds
    python launch/t_maze.py --cores rdn lstm --seeds 1 2 --out /tmp/maze

Each run is `python launch/atari.py --preset maze --core CORE --seed SEED`; runs that are already in
the folder are kept, so a cut-off command goes on where it was. Writes results.json (options and
every test episode's return), table.md and learning_curves.png.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, pstdev

if __name__ == "__main__":  # the code beside this file, whichever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress

from cores import CORES
from launch.core_sizes import is_named_by_size
from launch.failures import UserError, one_line_errors
from launch.log_table import read_logs
from launch.palette import COLOURS
from launch.run_folder import read_meta

ROOT = Path(__file__).parent.parent
DASHES = ("-", "--", ":")  # for more cores than colours


@one_line_errors
def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = [name for name in CORES if not is_named_by_size(name)]
    parser.add_argument("--cores", nargs="+", default=cores, choices=list(CORES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    runs = ROOT / "runs" / "t_maze"
    parser.add_argument("--out", type=Path, default=runs, help="table, results and picture go here")
    parser.add_argument("--runs", type=Path, default=runs, help="run folders")
    arguments = parser.parse_args()

    wanted = [(core, seed) for core in arguments.cores for seed in arguments.seeds]
    with Progress() as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        task = progress.add_task("runs", total=len(wanted))
        results = []
        for result in pool.map(lambda pair: run(*pair, arguments.runs), wanted):
            results.append(result)
            progress.advance(task)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / "table.md").write_text(table(results))
    draw(results, arguments.runs, arguments.out / "learning_curves.png")
    Console().print((arguments.out / "table.md").read_text())


def run(core: str, seed: int, runs: Path) -> dict:
    """Trains one agent unless its run is there, and returns what its test episodes came to."""
    folder = runs / f"{core}-{seed}"
    if not folder.exists() or not read_meta(folder)["successful"]:
        options = ["--preset", "maze", "--core", core, "--seed", str(seed)]
        where = ["--savedir", str(runs), "--xpid", folder.name]
        script = str(ROOT / "launch" / "atari.py")
        command = [sys.executable, script, *options, *where]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"{core}, seed {seed}: {done.stderr or done.stdout}")
    meta = read_meta(folder)
    newest = max(path for path in (folder / "evaluations").glob("step_*.json"))
    evaluation = json.loads(newest.read_text())
    return {
        "core": core,
        "seed": seed,
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
        won = [won_share(result) for result in results if result["core"] == core]
        cells = [f"{100 * share:.1f} %" for share in won]
        spread = f"{100 * fmean(won):.1f} ± {100 * pstdev(won):.1f} %"
        lines.append([f"`{core}`", *cells, spread])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def won_share(result: dict) -> float:
    """A game's return is above zero exactly where the agent turned to the side of the cue."""
    return fmean(one > 0 for one in result["returns"])


def draw(results: list[dict], runs: Path, path: Path) -> None:
    """One line a core: the mean over seeds of the last 100 games' return; seeds as a band."""
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
        axes.fill_between(
            steps, list(map(min, rows)), list(map(max, rows)), color=colour, alpha=0.15
        )
        axes.plot(steps, list(map(fmean, rows)), color=colour, linestyle=dashes, label=core)
    axes.set_title("T-maze, corridor of 10: 1 is a memory, 0 is chance")
    axes.set_xlabel("agent steps")
    axes.set_ylabel("return, mean of the last 100 training games")
    axes.set_ylim(-1, 1.05)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    figure.savefig(path)


if __name__ == "__main__":
    main()
