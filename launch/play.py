"""Test episodes as the commands play them: with progress, kept as JSON, one of them filmed."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import gymnasium
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.network import Network
from envs.interface import Environments
from envs.protocols import protocol_named
from launch.devices import choose_device
from launch.evaluation import Evaluation, check_actions, evaluate, film, make_environments
from launch.failures import user_input
from launch.options import RunOptions
from launch.pictures import write_clip
from launch.saved_agent import SavedAgent


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Play test episodes with a trained agent and report mean, std and every raw episode.

    Returns are undiscounted and unclipped. Writes RUN/evaluations/*.json and a clip.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """A run folder (its newest checkpoint) or one checkpoint file."""
    episodes: int = 30
    """Full games to play."""
    num_envs: int = 0
    """Environments at once, each for its share of the episodes. 0: one an episode, at most 32."""
    protocol: str | None = None
    """full-game, published, machado or noop30 (default: the one it was trained under)."""
    action_mode: Literal["argmax", "sampled"] = "argmax"
    """argmax: the most probable action, as published; sampled: drawn from the policy."""
    seed: int = 1_000_000
    """Of environments and sampled actions; environment i gets seed + i."""
    clip: bool = True
    """Also write a clip of one episode."""
    clip_seconds: float = 60.0
    """Longest clip, seconds of play at the game's own speed."""
    clip_format: Literal["mp4", "gif"] = "mp4"
    """The clip's format; without ffmpeg it is a GIF."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """CPU threads; 0: all cores."""


def check(options: EvaluateOptions) -> None:
    """Raises a one-line `ValueError` for numbers or names that cannot work."""
    if options.episodes < 1:
        raise ValueError(f"--episodes must be at least 1, not {options.episodes}")
    if options.num_envs < 0 or options.num_envs > options.episodes:
        raise ValueError(
            f"--num-envs {options.num_envs} must lie between 0 (automatic) and --episodes "
            f"{options.episodes}"
        )
    if options.protocol is not None:
        protocol_named(options.protocol)
    if options.clip_seconds <= 0:
        raise ValueError(f"--clip-seconds must be above 0, not {options.clip_seconds}")


def play(
    network: Network, trained: RunOptions, step: int, run: Path, options: EvaluateOptions
) -> tuple[Evaluation, Path]:
    """Plays the episodes that `options` ask for; returns them and where they are kept.

    `trained`: the options `network` was trained with, for `step` agent steps, in the folder `run`.
    """
    num_envs = min(options.num_envs or 32, options.episodes)
    protocol = options.protocol or trained.protocol
    device = choose_device(options.device)
    with user_input():
        environments = make_environments(trained, num_envs, options.seed, protocol=protocol)
        check_actions(network, environments)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("test episodes", total=options.episodes)
        episodes = evaluate(
            network,
            environments,
            episodes=options.episodes,
            action_mode=options.action_mode,
            seed=options.seed,
            device=device,
            progress=lambda finished: progress.update(task, completed=finished),
        )
    environments.close()
    evaluation = Evaluation(
        env=environments.name,
        protocol=protocol,
        action_mode=options.action_mode,
        seed=options.seed,
        num_envs=num_envs,
        agent_steps=step,
        episodes=episodes,
    )
    path = evaluation_path(run, evaluation)
    evaluation.save(path, run=run.resolve().name, options=trained.to_dict())
    return evaluation, path


def evaluation_path(run: Path, evaluation: Evaluation) -> Path:
    """Where an evaluation's episodes are kept: one file a checkpoint, protocol, mode and seed."""
    parts = (evaluation.protocol, evaluation.action_mode, f"seed{evaluation.seed}")
    name = "_".join((f"step_{evaluation.agent_steps:012d}", *parts)) + ".json"
    return run / "evaluations" / name


def make_clip(agent: SavedAgent, options: EvaluateOptions) -> Path | None:
    """Films one episode into RUN/clips/; None, and a line on stderr, where nothing can be seen."""
    environments = _visible_environment(agent, options)
    if environments is None:
        return None
    steps_per_second = 60 / environments.frames_per_step if environments.frames_per_step > 1 else 8
    pictures = film(
        agent.network,
        environments,
        action_mode=options.action_mode,
        seed=options.seed,
        max_steps=max(1, round(options.clip_seconds * steps_per_second)),
        device=choose_device(options.device),
    )
    name = f"step_{agent.step:012d}_{options.action_mode}.{options.clip_format}"
    path = agent.run / "clips" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    written = write_clip(pictures, path, fps=steps_per_second)
    environments.close()
    return written


def _visible_environment(agent: SavedAgent, options: EvaluateOptions) -> Environments | None:
    """One environment that has shown that it can be drawn; some of Gymnasium's need pygame."""
    try:
        environments = make_environments(
            agent.options, 1, options.seed, protocol=options.protocol, render=True
        )
        environments.reset()
        environments.render()
    except (gymnasium.error.Error, ValueError) as error:
        print(f"note: no clip, {agent.options.env} cannot be drawn: {error}", file=sys.stderr)
        return None
    return environments
