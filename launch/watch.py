"""Film one episode of a trained agent and show its memory at work.

For example: `python launch/watch.py RUN`.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host.waiting import sleep_while_waiting

    sys.path.pop(0)  # the folders beside the package are not packages
    sleep_while_waiting()  # torch is not loaded yet

import gymnasium
import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fastweights.envs.interface import Environments
from fastweights.evaluation.films.moments import Moment, moments
from fastweights.evaluation.films.screen import Screen
from fastweights.evaluation.films.window import Window
from fastweights.evaluation.games import check_actions
from fastweights.evaluation.pictures import write_clip
from fastweights.evaluation.play import GamePlan, environments_of
from fastweights.evaluation.player import ActionMode, Player
from fastweights.host.commands import typed
from fastweights.host.devices import choose_device, compute_exactly, use_threads
from fastweights.host.errors import UserError, expanded, one_line_errors, user_input
from fastweights.launch.cli.parser import typed_options
from fastweights.training.saved_agent import SavedAgent, check_game, open_agent
from fastweights.training.seeds import TEST_SEEDS


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """Film one episode: the game, the network's input and decisions, and its memory.

    Writes an MP4 into RUN/clips, or opens a window with --live.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder (its newest checkpoint) or checkpoint file."""
    out: Path | None = None
    """File of the film, .mp4 or .gif (default: one per game in RUN/clips)."""
    live: bool = False
    """Show it in a window instead, at the game's own speed."""
    frames: int | None = None
    """Maximum number of pictures, one per agent step (default: the whole episode)."""
    seconds: float | None = None
    """Maximum length of the film in seconds (default: the whole episode)."""
    env: str | None = None
    """The game again, where it brings a module of its own (my_module:MyGame-v0): it is imported."""
    protocol: str = "trained"
    """Rules: trained (as in training), full-game, published, machado or noop30."""
    action_mode: ActionMode = "argmax"
    """Choice of actions: argmax (the most probable) or sampled (drawn from the policy)."""
    seed: int = TEST_SEEDS.start
    """Seed of the game; seed s + i gives game i of `evaluate --seed s`."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per core."""


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = typed_options(WatchOptions, arguments, prog=typed("watch"))
    with user_input():
        use_threads(options.num_threads)
        compute_exactly()
        check(options)
        agent = open_agent(options.run, choose_device(options.device), options.env)
        check_game(agent.options, options.env, agent.path)
        environments = _visible(agent, options)
        check_actions(agent.network, environments)
    for warning in agent.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    fps = _pictures_a_second(environments)
    episode = _episode(agent, environments, options)
    if (limit := _limit(options, fps)) is not None:
        episode = islice(episode, limit)
    pictures = _pictures(episode, _title(agent), environments, limit)
    if options.live:
        _show(pictures, _title(agent), fps)
    else:
        path = write_clip(pictures, _path(agent, options), fps)
        Console().print(f"film: {path}", soft_wrap=True)
    environments.close()
    return 0


def check(options: WatchOptions) -> None:
    """Raise a one-line `ValueError` for what cannot work."""
    if options.frames is not None and options.frames < 1:
        raise ValueError(f"--frames must be at least 1, not {options.frames}")
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        raise ValueError(f"--seconds must be above 0 and finite, not {options.seconds}")
    if options.live and options.out is not None:
        raise ValueError("--live shows a window and writes no --out: give one of the two")
    if options.out is not None and not expanded(options.out).parent.is_dir():
        raise ValueError(f"--out {options.out}: no such folder; make it first")


def _visible(agent: SavedAgent, options: WatchOptions) -> Environments:
    try:
        plan = GamePlan(
            protocol=options.protocol, seed=options.seed, num_threads=options.num_threads
        )
        environments = environments_of(agent.options, plan, 1, options.seed, render=True)
        environments.reset()
        environments.render()
    except gymnasium.error.Error as error:
        raise UserError(f"{agent.options.env} cannot be drawn: {error}") from error
    return environments


def _episode(
    agent: SavedAgent, environments: Environments, options: WatchOptions
) -> Iterator[Moment]:
    player = Player(
        agent.network,
        environments,
        action_mode=options.action_mode,
        seed=options.seed,
        device=choose_device(options.device),
    )
    return moments(player)


def _pictures(
    episode: Iterator[Moment], title: str, environments: Environments, limit: int | None
) -> Iterator[np.ndarray]:
    """Every moment drawn, with progress on stderr."""
    first = next(episode)
    screen = Screen(first, title, environments.action_meanings)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("filming", total=limit, rate="")
        for moment in chain([first], episode):
            yield screen.draw(moment)
            speed = progress.tasks[0].speed or 0.0
            progress.update(task, advance=1, rate=f"{moment.step + 1:,} at {speed:.0f}/s")


def _show(pictures: Iterator[np.ndarray], title: str, fps: float) -> None:
    with Window(title, fps) as window:
        for picture in pictures:
            window.show(picture)
            if not window.is_open:
                return


def _limit(options: WatchOptions, fps: float) -> int | None:
    """Pictures at most; None for the whole episode."""
    asked = [options.frames, options.seconds and max(1, round(options.seconds * fps))]
    return min((limit for limit in asked if limit is not None), default=None)


def _pictures_a_second(environments: Environments) -> float:
    return 60 / environments.frames_per_step if environments.frames_per_step > 1 else 8


def _title(agent: SavedAgent) -> str:
    options = agent.options
    return f"{options.core} on {options.env}, seed {options.seed}, {agent.step:,} agent steps"


def _path(agent: SavedAgent, options: WatchOptions) -> Path:
    if options.out is not None:
        return expanded(options.out)
    game = f"{options.protocol}_{options.action_mode}_seed{options.seed}"
    path = agent.run / "clips" / f"step_{agent.step:012d}_{game}_memory.mp4"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
