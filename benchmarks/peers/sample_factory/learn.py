"""Train with Sample Factory until its games reach a return, and log how long that takes.

    .venv/bin/python learn.py --env Pong --target 18 --csv pong.csv

The options are Sample Factory's own for Atari, with an LSTM, in one process (its serial mode): 8
environments, unrolls of 128, 4 epochs of 4 minibatches, clipped surrogate objective, GAE,
normalised observations and returns, and a learning rate that falls to 0 at the end of the budget.
The script needs the environment that install.sh creates and nothing from this project.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from run import NEVER, command_line, run

UNROLL = 128
COLUMNS = ("agent_steps", "seconds", "cpu_seconds", "games", "recent_game_return")


def arguments(options: argparse.Namespace, folder: str) -> list[str]:
    """Return Sample Factory's command line; other options have Sample Factory's defaults."""
    given = {
        "seed": options.seed,
        "serial_mode": True,
        "num_workers": 1,
        "num_envs_per_worker": 8,  # instead of 8 workers with one environment each
        "recurrence": UNROLL,
        "rollout": UNROLL,
        "train_for_env_steps": options.total_steps,
        "train_for_seconds": NEVER,
    }
    return command_line(options.env, folder, given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="Pong", help="game with one life (default Pong)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default 1)")
    parser.add_argument(
        "--target", type=float, default=18.0, help="mean return of 100 games to stop at"
    )
    parser.add_argument(
        "--total-steps",
        type=int,
        default=2_500_000,
        help="maximum agent steps (default 2,500,000)",
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--csv", type=Path, required=True, help="log file, one row per update")
    options = parser.parse_args()

    import torch

    torch.set_num_threads(options.threads)
    start = time.monotonic()
    with options.csv.open("w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        log = csv.writer(file)
        log.writerow(COLUMNS)

        def after_update(runner: Any) -> None:
            recent = runner.policy_avg_stats.get("reward", [()])[0]  # of the last 100 games
            games = len(recent)
            mean = fmean(recent) if recent else None
            seconds = time.monotonic() - start
            steps = runner.total_env_steps_since_resume
            log.writerow((steps, round(seconds, 2), round(time.process_time(), 2), games, mean))
            file.flush()
            if games == 100 and mean >= options.target:
                runner.total_train_seconds = 2 * NEVER  # beyond train_for_seconds: it stops

        run(options.env, arguments(options, folder), after_update)


if __name__ == "__main__":
    main()
