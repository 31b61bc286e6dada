"""Playing test episodes with a trained network, and what they come to.

Every environment contributes a number of episodes fixed beforehand. Taking the first N to finish
over all environments would favour short episodes, and short ones are mostly bad ones.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np
import torch

import envs
from agents.actor import Actor
from agents.network import Network
from envs.interface import Environments, Episode
from launch.atomic_files import write_bytes

ActionMode = Literal["argmax", "sampled"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Raw test episodes with all that is needed to play them again."""

    env: str
    protocol: str
    action_mode: str
    seed: int
    num_envs: int
    agent_steps: int  # that the agent had been trained for
    episodes: tuple[Episode, ...]

    @property
    def full_game_returns(self) -> list[float]:
        return [episode.episode_return for episode in self.episodes]

    @property
    def life_returns(self) -> list[float]:
        return [life for episode in self.episodes for life in episode.life_returns]

    def summary(self) -> dict[str, float | int]:
        """Means and population standard deviations; returns undiscounted and unclipped."""
        games, lives = self.full_game_returns, self.life_returns
        return {
            "episodes": len(games),
            "full_game_mean": fmean(games),
            "full_game_std": pstdev(games),
            "lives": len(lives),
            "life_mean": fmean(lives),
            "life_std": pstdev(lives),
            "mean_agent_steps": fmean(episode.agent_steps for episode in self.episodes),
            "mean_emulator_frames": fmean(episode.emulator_frames for episode in self.episodes),
        }

    @classmethod
    def load(cls, path: Path) -> "Evaluation":
        """Reads what `save` wrote."""
        content = json.loads(path.read_text())
        given = {field.name: content[field.name] for field in fields(cls)}
        episodes = (Episode(**raw) for raw in content["episodes"])
        given["episodes"] = tuple(e._replace(life_returns=tuple(e.life_returns)) for e in episodes)
        return cls(**given)

    def save(self, path: Path, **about: Any) -> None:
        """Writes the summary and every raw episode as JSON, with `about` beside them."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = asdict(self) | {"summary": self.summary()} | about
        content["episodes"] = [episode._asdict() for episode in self.episodes]
        write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def evaluate(
    network: Network,
    environments: Environments,
    *,
    episodes: int,
    action_mode: ActionMode,
    seed: int,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda finished: None,
) -> tuple[Episode, ...]:
    """Plays `episodes` full games over the environments; the core's state follows each of them.

    `progress` is called with the number of games that count so far.
    """
    quota = _quota(episodes, environments.num_envs)
    actor = _player(network, environments, action_mode, seed, device)
    counted: list[Episode] = []
    while len(counted) < episodes:
        actor.step()
        new = [e for e in actor.row.episodes if e.index < quota[e.env]]
        if new:
            counted.extend(new)
            progress(len(counted))
    return tuple(sorted(counted, key=lambda episode: (episode.env, episode.index)))


def film(
    network: Network,
    environments: Environments,
    *,
    action_mode: ActionMode,
    seed: int,
    max_steps: int,
    device: torch.device | str = "cpu",
) -> Iterator[np.ndarray]:
    """The pictures [H, W, 3] of the first environment's first episode, one an agent step.

    Ends with the episode, or after `max_steps` agent steps.
    """
    actor = _player(network, environments, action_mode, seed, device)
    yield environments.render()[0]
    for _ in range(max_steps):
        actor.step()
        if any(episode.env == 0 for episode in actor.row.episodes):
            return
        yield environments.render()[0]


def check_actions(network: Network, environments: Environments) -> None:
    """Raises a one-line `ValueError` where a network cannot play an environment."""
    config = network.config
    if config.num_actions != environments.num_actions:
        raise ValueError(
            f"the checkpoint's policy has {config.num_actions} actions and {environments.name} "
            f"offers {environments.num_actions}: evaluate on the game and protocol it was "
            "trained for"
        )
    if tuple(config.frame_shape) != tuple(environments.frame_shape):
        raise ValueError(
            f"the checkpoint's stem takes frames of shape {tuple(config.frame_shape)} and "
            f"{environments.name} shows {tuple(environments.frame_shape)}: evaluate on the "
            "environment it was trained for"
        )


def make_environments(
    options: Any, num_envs: int, seed: int, *, protocol: str | None = None, render: bool = False
) -> Environments:
    """The environments of a run's options, or the same under another protocol."""
    return envs.make(
        options.env,
        num_envs,
        seed=seed,
        protocol=protocol or options.protocol,
        options=options.environment_options(),
        render=render,
        num_threads=options.num_threads,
    )


def _quota(episodes: int, num_envs: int) -> list[int]:
    """How many episodes each environment contributes; the first few one more than the others."""
    each, more = divmod(episodes, num_envs)
    return [each + (env < more) for env in range(num_envs)]


def _player(
    network: Network,
    environments: Environments,
    action_mode: ActionMode,
    seed: int,
    device: torch.device | str,
) -> Actor:
    generator = torch.Generator(device).manual_seed(seed)
    greedy = action_mode == "argmax"
    return Actor(network, environments, device=device, generator=generator, greedy=greedy)
