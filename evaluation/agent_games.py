"""Test games of one agent in each action mode, with a table and a clip."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from fastweights.evaluation.clips import ClipFormat, make_clip
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.player import ActionMode
from fastweights.evaluation.playing import GamePlan, keep, play, progress_bar
from fastweights.evaluation.printed_tables import evaluation_table
from fastweights.evaluation.rules import longest_test
from fastweights.evaluation.score_summary import remarks
from fastweights.host import Console, UserError, code_revision
from fastweights.training import SavedAgent


class ClipPlan(NamedTuple):
    """A clip of the first game: its maximum length in seconds, and its format."""

    seconds: float
    ending: ClipFormat


def play_agent(
    agent: SavedAgent,
    plan: GamePlan,
    modes: Sequence[ActionMode],
    device: torch.device,
    played: dict[str, dict[str, Evaluation]],
    clip: ClipPlan | None = None,
) -> None:
    """Play an agent's games, store them with the run, and print their table.

    Games are added to `played`, by game and label, as soon as they end. Raises `UserError` at the
    end if they could not be stored.
    """
    console, name = Console(), agent.games_folder.resolve().name
    limit = longest_test(agent.options, plan.protocol, plan.max_frames)
    # Before the games, during which the code's revision may change.
    origin = {
        "checkpoint": agent.path.name,
        "git": agent.payload.get("git"),
        "evaluation_git": code_revision(),
    }
    evaluations: dict[str, Evaluation] = {}
    unkept: Exception | None = None
    for mode in modes:
        with progress_bar(plan.games, f"{name} ({mode})", limit=limit) as report:
            evaluation = play(
                agent.network, agent.options, agent.step, plan, mode, device=device, report=report
            )
        evaluations[mode] = evaluation
        which = f"{agent.step:,} steps ({evaluation.core}, {mode})"
        others = played.setdefault(evaluation.env, {})
        called = f"{name}, {which}"
        others[f"{agent.games_folder}, {which}" if called in others else called] = evaluation
        try:
            path = keep(evaluation, agent.games_folder, agent.options, **origin)
            console.say(f"episodes: {path}")
        except (OSError, UserError) as error:  # raised after the table is shown
            unkept = error
    console.print(evaluation_table(f"{name}, {agent.step:,} agent steps", evaluations))
    for mode, evaluation in evaluations.items():
        for line in remarks(evaluation):
            console.say(f"{mode}: {line}")
    if unkept:
        raise UserError(f"the games were not saved: {unkept}") from unkept
    if clip and (path := make_clip(agent, plan, modes[0], device=device, **clip._asdict())):
        console.say(f"clip: {path}")
