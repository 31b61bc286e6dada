"""Measure the cost of actors in other processes, for `distributed.py`.

- `rates`: agent steps/s with Ray's actors and with both local schedules, on the same cores.
- `wire`: the bytes of a rollout, the smallest possible number on Atari, the effect of compression.
- `recovery`: seconds from the death of an actor to the first rollout of its replacement.
"""

import os
import pickle
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.arguments import last_words
from benchmarks.timing import logged_rate, median_ratio, play_rounds
from fastweights.agents import Actor, Network
from fastweights.host import Stages, UserError, choose_precision, user_input
from fastweights.records import read_logs
from fastweights.training import RunOptions, assembled, plan_of, preset
from fastweights.training.ray.guard import users
from fastweights.training.ray.wire import pack, rollout_form, unpack
from fastweights.training.schedules.experience import Experience, Source

ROOT = Path(__file__).parents[1]
WARM_UP = 5  # updates before the rate is measured
PRESET = "quick"
PICTURE = 84 * 84  # bytes, uncompressed, of the one new frame in an agent step on Atari
KINDS = {
    "lockstep": ("--schedule", "lockstep"),
    "asynchronous": ("--schedule", "asynchronous"),
    "ray": ("--engine", "ray"),
}
_PATIENCE = 120.0  # seconds to wait until an actor is replaced


def need_ray() -> None:
    """Raise a `UserError` if Ray is not installed."""
    if find_spec("ray") is None:
        raise UserError(
            "the parts ray and recovery need Ray: pip install -e '.[ray]', or leave them out: "
            "--parts learners wire"
        )


def rates(game: str, core: str, updates: int, rounds: int) -> dict[str, Any]:
    """Return agent steps/s of each kind in each round, and the medians of the rounds' ratios."""
    cases = {kind: partial(_rate, game, core, updates, words) for kind, words in KINDS.items()}
    found = play_rounds(cases, rounds, "{:.0f}".format)
    local = ("lockstep", "asynchronous")
    shares = {kind: median_ratio(found["ray"], found[kind]) for kind in local}
    what = {"game": game, "core": core, "preset": PRESET, "updates": updates}
    return what | {"rates": found, "ray_share_of": shares}


def rate_rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of a table: kind, agent steps/s, Ray's rate relative to it."""
    shares = found["ray_share_of"]
    return [
        (kind, f"{statistics.median(each):,.0f}", f"{shares[kind]:.0%}" if kind in shares else "")
        for kind, each in found["rates"].items()
    ]


def _rate(game: str, core: str, updates: int, kind: tuple[str, ...]) -> float:
    options = preset(PRESET, core)
    steps = (WARM_UP + updates) * options.batch_size * options.unroll_length
    with tempfile.TemporaryDirectory() as folder:
        words = ("--preset", PRESET, "--core", core, "--env", game, "--evaluate-episodes", "0")
        command = (sys.executable, str(ROOT / "launch" / "atari.py"))
        where = ("--savedir", folder, "--xpid", "run", "--disable-checkpoint")
        done = subprocess.run(
            [*command, *words, *where, *kind, "--total-steps", str(steps)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        if done.returncode:
            raise UserError(f"{' '.join(kind)}: the run failed: {last_words(done.stderr)}")
        return logged_rate(read_logs(Path(folder) / "run"), WARM_UP)


def wire(game: str, core: str, rollouts: int) -> dict[str, Any]:
    """Return bytes and seconds of one message: medians over `rollouts` with random actions.

    `least_bytes_per_step` is valid only for Atari, where a step has one new frame.

    Raises:
        UserError: the game has no pictures, or cannot be played; one line.
    """
    with user_input():
        plan = plan_of(replace(_options(game, core), schedule="lockstep"))
        (environments,) = plan.environments(0)
        options, shape = plan.options, environments.frame_shape
        network = Network(options.network(shape, environments.num_actions))
    form = rollout_form(network, options.unroll_length, environments.num_envs)
    actor, found = Actor(network, environments), []
    for _ in range(rollouts):
        experience = Experience(actor.collect(options.unroll_length), 0)
        message, encoding = _timed(lambda experience=experience: pickle.dumps(pack(experience), 5))
        _, decoding = _timed(lambda message=message: unpack(pickle.loads(message), form))
        small, packing = _timed(lambda message=message: zlib.compress(message, 1))
        _, unpacking = _timed(lambda small=small: zlib.decompress(small))
        seconds = {"encode": encoding, "decode": decoding, "pack": packing, "unpack": unpacking}
        found.append(seconds | {"bytes": len(message), "packed_bytes": len(small)})
    environments.close()
    medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
    steps = environments.num_envs * options.unroll_length
    saved, work = medians["bytes"] - medians["packed_bytes"], medians["pack"] + medians["unpack"]
    return medians | {
        "game": game,
        "core": core,
        "bytes_per_step": medians["bytes"] / steps,
        "packed_bytes_per_step": medians["packed_bytes"] / steps,
        "least_bytes_per_step": PICTURE,
        # On a network slower than this, zlib saves more time than it costs.
        "zlib_pays_below_bytes_per_second": saved / work,
    }


def wire_rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of a table: contents, bytes per agent step, milliseconds per message."""
    plain = 1000 * (found["encode"] + found["decode"])
    packed = plain + 1000 * (found["pack"] + found["unpack"])
    pays = found["zlib_pays_below_bytes_per_second"] / 1e6
    return [
        ("least possible on Atari: one frame", f"{found['least_bytes_per_step']:,}", ""),
        ("message", f"{found['bytes_per_step']:,.0f}", f"{plain:.1f}"),
        ("message with zlib, level 1", f"{found['packed_bytes_per_step']:,.0f}", f"{packed:.1f}"),
        ("zlib saves time below", f"{pays:,.0f} MB/s", ""),
    ]


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def recovery(game: str, core: str, rounds: int) -> dict[str, Any]:
    """Return, for each round, the seconds from `kill -9` to the replacement actor's rollout."""
    with user_input():
        plan, found = plan_of(replace(_options(game, core), engine="ray")), []
    with assembled(plan.options, plan, Stages("learner")) as (_, source), source:
        source.publish(0)
        rollouts, crew = source.rollouts(), source.crew
        for turn in range(rounds):
            while crew.actors < len(crew.stages):
                _learn_nothing(source, rollouts)
            restarts, start = crew.restarts, time.monotonic()
            os.kill(_an_actor(source.session.folder), signal.SIGKILL)
            while crew.restarts == restarts or crew.failing:
                _learn_nothing(source, rollouts)
                if time.monotonic() - start > _PATIENCE:
                    raise UserError(f"an actor was not replaced within {_PATIENCE:.0f} seconds")
            found.append(time.monotonic() - start)
            print(f"round {turn + 1}: replaced after {found[-1]:.1f} s", file=sys.stderr)
    return {"game": game, "core": core, "seconds": found}


def recovery_rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of a table: event, median seconds, seconds of every round."""
    every = " ".join(f"{seconds:.1f}" for seconds in found["seconds"])
    return [
        ("from kill -9 to the next rollout", f"{statistics.median(found['seconds']):.1f}", every)
    ]


def _learn_nothing(source: Source, rollouts: Iterator[Experience]) -> None:
    next(rollouts)
    source.release(1)


def _an_actor(folder: str) -> int:
    for process in users(folder):
        if (Path("/proc") / str(process) / "cmdline").read_bytes().startswith(b"ray::RemoteActor"):
            return process
    raise UserError("found no actor's process; the part recovery needs Linux")


def _options(game: str, core: str) -> RunOptions:
    options = preset(PRESET, core)
    return replace(options, env=game, precision=choose_precision("auto", torch.device("cpu")))
