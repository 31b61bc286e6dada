"""A clip of a trained agent's first test game."""

import sys
from pathlib import Path
from typing import Literal

import gymnasium
import torch

from fastweights.envs import BrokenEnvironment, Environments, NoPictures
from fastweights.evaluation.games import film
from fastweights.evaluation.pictures import write_clip
from fastweights.evaluation.player import ActionMode
from fastweights.evaluation.playing import GamePlan, environments_of_plan
from fastweights.evaluation.rules import in_file_name
from fastweights.training import SavedAgent

ClipFormat = Literal["mp4", "gif"]


def make_clip(
    agent: SavedAgent,
    plan: GamePlan,
    action_mode: ActionMode,
    *,
    seconds: float,
    ending: ClipFormat = "mp4",
    device: torch.device | str = "cpu",
) -> Path | None:
    """Film the plan's first game into RUN/clips/: `seconds` of play at the game's normal speed.

    If the environment draws no pictures, print a line on stderr and return None.
    """
    try:
        environments = visible_environments(agent, plan)
    except ValueError as error:
        return _no_clip(error)
    fps = environments.steps_per_second
    pictures = film(
        agent.network,
        environments,
        action_mode=action_mode,
        seed=plan.seed,
        max_steps=max(1, round(seconds * fps) - 1),  # the first picture precedes the first step
        device=device,
    )
    try:
        return write_clip(pictures, clip_path(agent, plan, action_mode, f".{ending}"), fps)
    except BrokenEnvironment as error:  # its pictures changed
        return _no_clip(error)
    finally:
        environments.close()


def _no_clip(reason: ValueError) -> None:
    print(f"note: no clip: {reason}", file=sys.stderr)


def visible_environments(agent: SavedAgent, plan: GamePlan) -> Environments:
    """Return the plan's first game, after testing that it can draw; some games need pygame.

    Raises `NoPictures`, and `ValueError` as `environments_of_plan` does.
    """
    environments = environments_of_plan(agent.options, plan, 1, plan.seed, render=True)
    try:
        environments.reset()
        environments.render()
    except gymnasium.error.Error as error:
        environments.close()
        raise NoPictures(f"{agent.options.env} cannot be drawn: {error}") from error
    return environments


def environments_to_film(agent: SavedAgent, plan: GamePlan) -> Environments:
    """Return the plan's first game; if it draws no pictures, print a line on stderr."""
    try:
        return visible_environments(agent, plan)
    except NoPictures as reason:
        print(f"note: the film will not show the game itself: {reason}", file=sys.stderr)
        return environments_of_plan(agent.options, plan, 1, plan.seed)


def clip_path(agent: SavedAgent, plan: GamePlan, action_mode: ActionMode, ending: str) -> Path:
    """Return a path in the run's folder `clips`, which is created if missing."""
    pairs = (option.partition("=") for option in plan.env_options)
    changes = (in_file_name(name, value) for name, _, value in pairs)
    game = "_".join((plan.protocol, *changes, action_mode, f"seed{plan.seed}"))
    path = agent.games_folder / "clips" / f"step_{agent.step:012d}_{game}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
