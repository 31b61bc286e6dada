"""A film of one episode: its moments drawn one by one, for a file or a window."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fastweights.envs.interface import Environments
from fastweights.evaluation.films.moments import Moment, moments
from fastweights.evaluation.films.screen import Screen
from fastweights.evaluation.films.window import Window
from fastweights.evaluation.play import GamePlan, environments_of
from fastweights.evaluation.player import ActionMode, Player
from fastweights.host.errors import UserError
from fastweights.training.saved_agent import SavedAgent


def visible(agent: SavedAgent, plan: GamePlan) -> Environments:
    """The plan's first game, which can be drawn. Raises `UserError` where it cannot."""
    try:
        environments = environments_of(agent.options, plan, 1, plan.seed, render=True)
        environments.reset()
        environments.render()
    except gymnasium.error.Error as error:
        raise UserError(f"{agent.options.env} cannot be drawn: {error}") from error
    return environments


def episode(
    agent: SavedAgent,
    environments: Environments,
    action_mode: ActionMode,
    seed: int,
    device: torch.device,
) -> Iterator[Moment]:
    """The moments of a game that the agent plays, from the first to the last."""
    player = Player(agent.network, environments, action_mode=action_mode, seed=seed, device=device)
    return moments(player)


def film(
    agent: SavedAgent, environments: Environments, played: Iterator[Moment], limit: int | None
) -> Iterator[np.ndarray]:
    """Every moment drawn, with progress on stderr; `limit`: pictures at most."""
    if limit is not None:
        played = islice(played, limit)
    first = next(played)
    screen = Screen(first, title(agent), environments.action_meanings)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("filming", total=limit, rate="")
        for moment in chain([first], played):
            yield screen.draw(moment)
            speed = progress.tasks[0].speed or 0.0
            progress.update(task, advance=1, rate=f"{moment.step + 1:,} at {speed:.0f}/s")


def show(pictures: Iterator[np.ndarray], title: str, fps: float) -> None:
    """Shows pictures in a window until it is closed."""
    with Window(title, fps) as window:
        for picture in pictures:
            window.show(picture)
            if not window.is_open:
                return


def pictures_a_second(environments: Environments) -> float:
    """The game's own speed; 8 where a step is not several emulator frames."""
    return 60 / environments.frames_per_step if environments.frames_per_step > 1 else 8


def title(agent: SavedAgent) -> str:
    """What stands above a film."""
    options = agent.options
    return f"{options.core} on {options.env}, seed {options.seed}, {agent.step:,} agent steps"


def path_of(agent: SavedAgent, plan: GamePlan, action_mode: ActionMode) -> Path:
    """The file of a film in the run's folder `clips`, which is made where it is missing."""
    game = f"{plan.protocol}_{action_mode}_seed{plan.seed}"
    path = agent.run / "clips" / f"step_{agent.step:012d}_{game}_memory.mp4"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
