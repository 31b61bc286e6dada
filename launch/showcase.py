"""What a newcomer sees at the end of `make atari`: before and after, a curve and a clip."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from rich.console import Console

from agents.network import Network
from launch.devices import choose_device
from launch.evaluation import Evaluation
from launch.log_table import read_logs
from launch.options import RunOptions
from launch.pictures import learning_curve, still
from launch.play import EvaluateOptions, evaluation_path, make_clip, play
from launch.saved_agent import open_agent
from launch.tables import evaluation_table


def before_training(network: Network, options: RunOptions, run: Path) -> None:
    """Plays test episodes with the untrained network and keeps them for the closing table."""
    print("playing test episodes before training", flush=True)
    play(network, options, 0, run, _test(run, options))


def showcase(run: Path, options: RunOptions) -> None:
    """Plays, films and draws the trained agent; prints the table and where the pictures are."""
    test = _test(run, options)
    agent = open_agent(run, choose_device(test.device))
    after, _ = play(agent.network, options, agent.step, run, test)
    before = Evaluation.load(evaluation_path(run, replace(after, agent_steps=0)))
    curve = run / "learning_curve.png"
    learning_curve(
        read_logs(run / "logs.csv"),
        curve,
        title=f"{options.core} on {options.env}, seed {options.seed}",
        references={"before training": before.summary()["full_game_mean"]},
    )
    pictures = {"curve": curve}
    if clip := make_clip(agent, test):
        pictures |= {"clip": clip, "frame": run / "clips" / "frame.png"}
        still(_middle(imageio.imiter(clip)), pictures["frame"])
    console = Console()
    console.print(evaluation_table({"before training": before, "after training": after}))
    for what, path in {**pictures, "run folder": run}.items():
        console.print(f"{what}: {path}", soft_wrap=True)


def _test(run: Path, options: RunOptions) -> EvaluateOptions:
    # Sampled actions: an agent a few minutes old is undecided, and argmax makes it freeze.
    return EvaluateOptions(
        run=run,
        episodes=options.evaluate_episodes,
        action_mode="sampled",
        device=options.learner_device or options.device,
        num_threads=options.num_threads,
    )


def _middle(pictures: Iterator[np.ndarray]) -> np.ndarray:
    frames = list(pictures)
    return frames[len(frames) // 2]
