"""Measure the cost of a second learner, for `distributed.py`.

Four kinds of runs alternate:

- alone: one learner on one core.
- two runs: two unrelated learners on one core each; shows the cost of sharing the machine.
- two learners: two learners of one run on one core each; shows the cost of exchanging gradients
  with gloo.
- alone on both: the same run with one learner, which has two threads on both cores.

Every learner is pinned to its cores. A learner on one core has half of the run's environments. All
rates are per core and compared with both single learners: alone, and alone on both.

The speed of a shared machine can change by a tenth from one minute to the next. Therefore, the log
of the two learners gives a second measure: the share of an update that they spend waiting for each
other and exchanging gradients and reports.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import last_words
from benchmarks.timing import logged_rate, median_ratio, play_rounds
from fastweights.host import UserError
from fastweights.records import read_logs
from fastweights.training import preset

ROOT = Path(__file__).parents[1]
WARM_UP = 2  # updates before the rate is measured
SLOWEST = 60.0  # seconds per update after which learners count as stuck
KINDS = ("alone", "two runs", "two learners", "alone on both")
LONE = {"alone": "share_of_alone", "alone on both": "share_of_alone_on_both"}


class Learner(NamedTuple):
    """A learner's process, and the file with its stderr: a full pipe would block it."""

    process: subprocess.Popen[bytes]
    errors: Path


@dataclass(frozen=True)
class Job:
    """Settings that all learners share."""

    game: str
    core: str
    preset: str
    updates: int  # over which the rate is measured
    folder: Path

    @property
    def runs(self) -> Path:
        """The folder of the run folders."""
        return self.folder / "runs"

    def start(
        self, name: str, cores: Collection[int], share: int, place: dict[str, str] | None = None
    ) -> Learner:
        """Start a learner of run `name`; the run's batch is `1 / share` of the preset's.

        `place`: environment variables that torchrun would set.
        """
        known = preset(self.preset, self.core)
        size, threads = known.num_envs // share, len(cores)
        steps = (WARM_UP + self.updates) * size * known.unroll_length
        options = {"env": self.game, "core": self.core, "preset": self.preset, "xpid": name}
        options |= {"num-envs": size, "batch-size": size, "num-threads": threads}
        options |= {"savedir": self.runs, "total-steps": steps, "evaluate-episodes": 0}
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
        errors = self.folder / f"errors_{min(cores)}.txt"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "launch" / "atari.py"), *words, "--disable-checkpoint"],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=os.environ | variables | (place or {}),
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
        return Learner(process, errors)

    def learners(self, kind: str) -> Iterator[Learner]:
        """Start the learners of one of `KINDS`, one after the other."""
        first, second = two_cores()
        if kind == "alone on both":
            yield self.start("run", {first, second}, share=1)
        elif kind == "two learners":
            port = _free_port()
            for rank, core in enumerate((first, second)):
                yield self.start("run", {core}, 1, _place(rank, port))
        else:
            yield self.start("run", {first}, share=2)
            if kind != "alone":
                yield self.start("other", {second}, share=2)


def two_cores() -> list[int]:
    """Return two cores that this process may use. Raises `UserError` if there are fewer."""
    if not hasattr(os, "sched_getaffinity"):
        raise UserError(
            "the part `learners` needs Linux, to pin processes to cores; leave it out: "
            "--parts ray wire recovery"
        )
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise UserError("two learners need two cores, but this process may use one")
    return cores


class Sample(NamedTuple):
    """The measurement of one kind of run in one round."""

    rate: float  # agent steps/s per core
    update: float  # seconds from one update to the next
    exchange: float  # seconds of `update` spent waiting for the other learner and exchanging


def measure(game: str, core: str, settings: str, updates: int, rounds: int) -> dict[str, Any]:
    """Return agent steps/s per core in each round, and median ratios to both single learners.

    `settings` is the name of the preset.
    """
    cases = {kind: partial(_sample, kind, game, core, settings, updates) for kind in KINDS}
    samples = play_rounds(cases, rounds, lambda sample: f"{sample.rate:.0f} a core")
    rates = {kind: [one.rate for one in samples[kind]] for kind in KINDS}
    shares = {
        share: {kind: median_ratio(rates[kind], rates[lone]) for kind in KINDS}
        for lone, share in LONE.items()
    }
    together = statistics.median(one.exchange / one.update for one in samples["two learners"])
    what = {"game": game, "core": core, "preset": settings, "updates": updates}
    seconds = {kind: [one._asdict() for one in samples[kind]] for kind in KINDS}
    return what | {"rates": rates, "samples": seconds, "exchange_share": together} | shares


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a table.

    Columns: kind; agent steps/s per core; ratios to a single learner on one core and on two; the
    exchange's share of an update.
    """
    return [
        (
            kind,
            f"{statistics.median(rates):,.0f}",
            *(f"{found[share][kind]:.0%}" for share in LONE.values()),
            f"{found['exchange_share']:.1%}" if kind == "two learners" else "",
        )
        for kind, rates in found["rates"].items()
    ]


def _sample(kind: str, *what: Any) -> Sample:
    """Perform one kind of run and return the figures that it logs after its warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(*what, Path(folder))
        learners: list[Learner] = []
        try:
            learners.extend(job.learners(kind))
            _wait(kind, learners, SLOWEST * (WARM_UP + job.updates))
        finally:  # no learner may outlive its folder
            for process, _ in learners:
                process.kill()
                process.wait()
        runs = [read_logs(run) for run in job.runs.iterdir() if not run.is_symlink()]
    rates = [logged_rate(run, WARM_UP) for run in runs]
    steps = runs[0]["step"][0]
    return Sample(
        rate=sum(rates) / (1 if kind == "alone" else 2),
        update=steps / rates[0],
        exchange=statistics.fmean(runs[0]["seconds_exchange"][WARM_UP:]),
    )


def _wait(kind: str, learners: Sequence[Learner], longest: float) -> None:
    """Wait until all learners end.

    Raises `UserError` after `longest` seconds, or if a learner fails, because others may wait for
    it.
    """
    until, running = time.monotonic() + longest, True
    while running:
        running = None in [process.poll() for process, _ in learners]
        for process, errors in learners:
            if process.returncode:
                said = errors.read_text(errors="replace")
                raise UserError(f"{kind}: a run failed: {last_words(said)}")
        if running and time.monotonic() > until:
            raise UserError(f"{kind}: a run did not end within {longest:.0f} seconds")
        time.sleep(0.05)


def _place(rank: int, port: int) -> dict[str, str]:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    return where | {"WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
