"""The end of `make atari`: test games before and after training, a learning curve and a clip."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import torch

from fastweights.agents import Network
from fastweights.evaluation.clips import make_clip
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.learning_curves import draw_learning_curve, save_figure
from fastweights.evaluation.pictures import still
from fastweights.evaluation.playing import keep
from fastweights.evaluation.printed_tables import evaluation_table
from fastweights.evaluation.training_returns import measured_unit, shortfall
from fastweights.evaluation.training_tests import (
    ACTION_MODE,
    games_of,
    own_tests,
    play_games_of,
    shown,
)
from fastweights.host import Console, choose_device
from fastweights.records import read_logs
from fastweights.training import RunOptions, open_agent, trained_rules

_CLIP_SECONDS = 60.0


def before_training(
    network: Network,
    options: RunOptions,
    run: Path,
    device: torch.device,
    check: Callable[[], None],
) -> None:
    """Play test episodes with the untrained network, and store them for the final table.

    `check` is called after every step; an exception that it raises ends the games.
    """
    with shown(options, "test games before training") as show:

        def report(finished: int, longest: int) -> None:
            check()
            show(finished, longest)

        keep(play_games_of(network, options, 0, device, report), run, options)


def show_trained(run: Path, options: RunOptions) -> None:
    """Play and film the trained agent and draw its curve; print the table and the paths."""
    device = choose_device(options.learner_device or options.device)
    agent = open_agent(run, device, options.env, options.core)
    with shown(options, "test games after training") as report:
        after = play_games_of(agent.network, options, agent.step, device, report)
        keep(after, run, options)
    tests = own_tests(run, options).values()
    before = next((one for one in tests if one.agent_steps == 0), None)
    pictures = _curve(run, options, before)
    console = Console()
    columns = ({"before training": before} if before else {}) | {"after training": after}
    console.print(evaluation_table(f"{options.core}, {ACTION_MODE} actions", columns))
    plan = games_of(options)
    if clip := make_clip(agent, plan, ACTION_MODE, seconds=_CLIP_SECONDS, device=device):
        pictures |= {"clip": clip, "frame": run / "clips" / "frame.png"}
        still(_middle(clip), pictures["frame"])
    for what, path in {**pictures, "run folder": run}.items():
        console.say(f"{what}: {path}")


def _curve(run: Path, options: RunOptions, before: Evaluation | None) -> dict[str, Path]:
    """Draw the learning curve if enough games have ended; otherwise print what is missing."""
    logs, path = read_logs(run / "logs.csv"), run / "learning_curve.png"
    if said := shortfall(logs, options.num_envs):
        Console().say(f"learning curve: {said}")
    unit = measured_unit(logs, options.num_envs)
    if unit is None:
        return {}
    untrained = (
        {"before training, test games": before.summary()[f"{unit.tested}_mean"]} if before else {}
    )
    title = f"{options.core} on {options.env}, seed {options.seed}"
    frames_per_step = trained_rules(options).frames_per_step(options.env)
    save_figure(
        draw_learning_curve(logs, unit, options.num_envs, title, frames_per_step, untrained), path
    )
    return {"curve": path}


def _middle(clip: Path) -> np.ndarray:
    """Return a clip's middle picture; the clip is read twice, and never held in memory."""
    count = sum(1 for _ in imageio.imiter(clip))
    return next(islice(imageio.imiter(clip), count // 2, None))
