"""A clip of a trained agent's first test game."""

import sys
from pathlib import Path
from typing import Literal

import gymnasium
import torch

from fastweights.envs.interface import Environments
from fastweights.evaluation.games import film
from fastweights.evaluation.pictures import write_clip
from fastweights.evaluation.play import GamePlan, environments_of
from fastweights.evaluation.player import ActionMode
from fastweights.training.saved_agent import SavedAgent

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
    """Film the plan's first game into RUN/clips/: `seconds` of play at the game's own speed.

    Returns None, after a line on stderr, if the environment draws no pictures.
    """
    environments = _visible_environment(agent, plan)
    if environments is None:
        return None
    steps_per_second = 60 / environments.frames_per_step if environments.frames_per_step > 1 else 8
    pictures = film(
        agent.network,
        environments,
        action_mode=action_mode,
        seed=plan.seed,
        max_steps=max(1, round(seconds * steps_per_second)),
        device=device,
    )
    game = f"{plan.protocol}_{action_mode}_seed{plan.seed}"
    path = agent.run / "clips" / f"step_{agent.step:012d}_{game}.{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    written = write_clip(pictures, path, fps=steps_per_second)
    environments.close()
    return written


def _visible_environment(agent: SavedAgent, plan: GamePlan) -> Environments | None:
    """Return one environment after a trial drawing; some of Gymnasium's need pygame."""
    try:
        environments = environments_of(agent.options, plan, 1, plan.seed, render=True)
        environments.reset()
        environments.render()
    except (gymnasium.error.Error, ValueError) as error:
        print(f"note: no clip, {agent.options.env} cannot be drawn: {error}", file=sys.stderr)
        return None
    return environments
