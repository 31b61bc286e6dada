"""Predefined grids of agents, one per question: `python launch/suite.py NAME`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fastweights.cores import CORES
from fastweights.envs import resolve
from fastweights.experiments.agents.ablation import ARMS
from fastweights.experiments.agents.cells import AgentRun
from fastweights.host import unknown_name
from fastweights.training import RunOptions, preset


class Start(NamedTuple):
    """A run's options without seed, budget and folder, and the closest preset."""

    preset: str
    options: RunOptions


class Axis(NamedTuple):
    """The values of one label of a suite."""

    default: Sequence[str]
    known: Mapping[str, object] | None = None  # allowed values; None: any that `start` accepts


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A grid of `axes` x seeds; a run's result is its training return, without test games."""

    question: str  # one line; the table answers it
    axes: Mapping[str, Axis]  # by label; each value of the first has its own panel in the figure
    start: Callable[..., Start]  # takes one value of each axis, by label
    seeds: Sequence[int] = (1, 2, 3)
    digits: int = 1  # decimal places of returns
    note: str = ""  # shown below the table, and in --help

    @property
    def panel(self) -> str:
        """The label whose values are not comparable: the game."""
        return next(iter(self.axes))

    def run(self, runs: Path, total_steps: int | None, seed: int, **labels: str) -> AgentRun:
        """Return the run of one cell, in the folder `runs`; `total_steps` None: the suite's.

        Raises:
            ValueError: an unknown value, or a number out of range; one line.
        """
        for name, value in labels.items():
            known = self.axes[name].known
            if known is not None and value not in known:
                raise ValueError(unknown_name(name, value, known))
        begin, options = self.start(**labels)
        learner = options.learner
        if total_steps is not None:
            learner = replace(learner, total_steps=total_steps)
        folder = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join([*labels.values(), f"seed{seed}"]))
        own = {"seed": seed, "savedir": runs, "xpid": folder, "evaluate_episodes": 0}
        return AgentRun(replace(options, learner=learner, **own), begin)


# Views of Atari that need memory: four consecutive pictures would suffice for most games.
VIEWS = {
    "single": ("frame_stack=1",),
    "flicker": ("frame_stack=1", "flicker=0.5"),
}


def _atari(game: str, core: str) -> Start:
    return Start("afternoon", replace(preset("afternoon", core), env=_existing(game)))


def _ablation(game: str, arm: str, core: str) -> Start:
    options = replace(ARMS[arm].options(core), env=_existing(game))
    return Start(ARMS[arm].preset, options)


def _memory_on_atari(game: str, view: str, core: str) -> Start:
    start = _atari(game, core)
    return start._replace(options=replace(start.options, env_options=VIEWS[view]))


def _popgym(game: str, core: str) -> Start:
    env = _existing(f"popgym:popgym-{game}-v0")
    return Start("vectors", replace(preset("vectors", core), env=env))


def _existing(env: str) -> str:
    """Return `env`; raise a one-line `ValueError` if there is no such environment."""
    resolve(env)
    return env


SUITES: dict[str, Suite] = {
    "atari": Suite(
        question="How well does the preset `afternoon` do on Atari, and with which memory?",
        axes={
            "game": Axis(("Pong", "Qbert", "Breakout")),
            "core": Axis(("lstm", "rdn"), CORES),
        },
        start=_atari,
    ),
    "ablation": Suite(
        question="What does each ingredient of the preset `quick` contribute?",
        axes={
            "game": Axis(("Qbert", "Pong")),
            "arm": Axis(tuple(ARMS), ARMS),
            "core": Axis(("rdn",), CORES),
        },
        start=_ablation,
        note="\n".join(f"- `{name}`: {arm.reason}" for name, arm in ARMS.items()),
    ),
    "flicker": Suite(
        question="Does memory help on Atari if agents see single pictures?",
        axes={
            "game": Axis(("Pong", "Breakout")),
            "view": Axis(tuple(VIEWS), VIEWS),
            "core": Axis(("feedforward", "lstm", "rdn"), CORES),
        },
        start=_memory_on_atari,
        note="\n".join(
            (
                "- `single`: one picture instead of the last four.",
                "- `flicker`: the same, and each picture is blank with probability 0.5.",
            )
        ),
    ),
    "popgym": Suite(
        question="Which memories learn POPGym's games?",
        axes={
            "game": Axis(
                (
                    *("RepeatPreviousEasy", "RepeatFirstEasy", "AutoencodeEasy"),
                    *("CountRecallEasy", "RepeatPreviousMedium"),
                )
            ),
            "core": Axis(("lstm", "gru", "rdn", "delta_net", "delta_rnn", "feedforward"), CORES),
        },
        start=_popgym,
        digits=2,
    ),
}
