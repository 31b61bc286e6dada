"""A film of one episode: its moments drawn one by one, for a file or a window."""

from collections.abc import Iterator
from itertools import chain, islice

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fastweights.envs import Environments, resolve
from fastweights.evaluation.films.moments import Moment, moments
from fastweights.evaluation.films.screen import Screen
from fastweights.evaluation.films.window import Window
from fastweights.evaluation.player import ActionMode, Player
from fastweights.host import StopRequests
from fastweights.training import SavedAgent


def episode(
    agent: SavedAgent,
    environments: Environments,
    action_mode: ActionMode,
    seed: int,
    device: torch.device,
) -> Iterator[Moment]:
    """Yield the moments of one game played by the agent."""
    player = Player(agent.network, environments, action_mode=action_mode, seed=seed, device=device)
    return moments(player)


def filmed(
    agent: SavedAgent, environments: Environments, played: Iterator[Moment], limit: int | None
) -> Iterator[np.ndarray]:
    """Yield drawn moments, at most `limit`, and show progress on stderr."""
    if limit is not None:
        played = islice(played, limit)
    first = next(played)
    is_atari = resolve(agent.options.env).rom is not None  # frames are grey pictures
    screen = Screen(first, film_title(agent), environments.action_meanings, is_stack=is_atari)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("filming", total=limit, rate="")
        for moment in chain([first], played):
            yield screen.draw(moment)
            speed = progress.tasks[0].speed or 0.0
            progress.update(task, advance=1, rate=f"{moment.step + 1:,} at {speed:.0f}/s")


def until_stopped(pictures: Iterator[np.ndarray], stop: StopRequests) -> Iterator[np.ndarray]:
    """Yield pictures until a stop is requested, so that what was filmed by then is kept."""
    for picture in pictures:
        yield picture
        if stop.requested:
            return


def show_pictures(pictures: Iterator[np.ndarray], title: str, fps: float) -> None:
    """Show pictures in a window, until it is closed."""
    with Window(title, fps) as window:
        for picture in pictures:
            window.show(picture)
            if not window.is_open:
                return


def film_title(agent: SavedAgent) -> str:
    """Return the title of a film."""
    options = agent.options
    seed = "" if agent.seed is None else f", seed {agent.seed}"
    return f"{options.core} on {options.env}{seed}, {agent.step:,} agent steps"
