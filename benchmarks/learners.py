"""What a second learner costs: for `distributed.py`.

Every learner has one core of its own (its threads are pinned to it), one thread, and half the batch
of the pair. Three take turns: a lone one, two that know nothing of each other (what sharing the
machine costs), and two that make one run by gloo (what working together costs).
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from launch.failures import UserError
from launch.log_table import read_logs

ROOT = Path(__file__).parents[1]
WARM_UP = 3  # updates that no rate is taken of
KINDS = ("alone", "two runs", "two learners")


def measure(game: str, core: str, updates: int, rounds: int) -> dict[str, Any]:
    """Agent steps/s of a core in each round, and the medians of the rounds' ratios to `alone`."""
    if len(_cores()) < 2:
        raise UserError("two learners want two cores, and this process may use one")
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(rounds):
        for kind in KINDS:
            rates[kind].append(_rate(kind, game, core, updates))
            print(f"round {turn + 1}: {kind} {rates[kind][-1]:.0f} a core", file=sys.stderr)
    shares = {
        kind: statistics.median(a / b for a, b in zip(rates[kind], rates["alone"], strict=True))
        for kind in KINDS
    }
    return {"game": game, "core": core, "rates": rates, "share_of_alone": shares}


def rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """For a table: kind, agent steps/s of a core, share of a lone one's."""
    return [
        (kind, f"{statistics.median(rates):,.0f}", f"{found['share_of_alone'][kind]:.0%}")
        for kind, rates in found["rates"].items()
    ]


def _rate(kind: str, game: str, core: str, updates: int) -> float:
    """The mean over the cores in use of what the logs say, once everything is warm."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "two learners":
            port = _free_port()
            learners = [
                _start(folder, "run", game, core, updates, size=32, place=(rank, port))
                for rank in range(2)
            ]
            names = ["run"]
        else:
            names = ["a"] if kind == "alone" else ["a", "b"]
            learners = [
                _start(folder, name, game, core, updates, size=16, place=(cpu, None))
                for cpu, name in enumerate(names)
            ]
        for learner in learners:
            if learner.wait():
                raise UserError(f"{kind}: a run failed: {_last_line(learner)}")
        rates = [_logged(Path(folder) / name) for name in names]
    return statistics.mean(rates) / (2 if kind == "two learners" else 1)


def _start(
    folder: str, name: str, game: str, core: str, updates: int, size: int, place: tuple
) -> subprocess.Popen[str]:
    rank, port = place
    options = {"env": game, "core": core, "preset": "quick", "evaluate-episodes": 0}
    options |= {"num-envs": size, "batch-size": size, "num-threads": 1, "xpid": name}
    options |= {"savedir": folder, "total-steps": (WARM_UP + updates) * size * 20}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if port is not None:
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
        variables |= {"WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    cpu = _cores()[rank]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "launch" / "atari.py"), *words, "--disable-checkpoint"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _logged(run: Path) -> float:
    return statistics.median(read_logs(run)["agent_steps_per_second"][WARM_UP:])


def _last_line(process: subprocess.Popen[str]) -> str:
    return (process.stderr.read().strip().splitlines() or ["without a word"])[-1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
