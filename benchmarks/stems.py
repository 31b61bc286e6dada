"""Measure how much a stem's features vary over the frames of a game.

    python benchmarks/stems.py --env Pong                         untrained stems
    python benchmarks/stems.py --env Pong --runs runs/a runs/b    trained agents of the game, too
    python benchmarks/stems.py --json stems.json

A filter or feature is silent if it is 0 for every frame, so that it passes neither information nor
a gradient. The outputs of the fully connected layer, before normalisation and ReLU, are split into
a constant part (their mean over the frames) and a varying part: if the constant part is much
larger, the agent is nearly blind. Untrained stems see 600 frames of four games with random actions.
A trained agent sees the frames of its own games, except blank ones.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from fastweights import envs
from fastweights.agents import ImageStem, build_stem
from fastweights.evaluation import GamePlan
from fastweights.evaluation.player import Player
from fastweights.evaluation.playing import environments_of_plan
from fastweights.host import UserError, one_line_errors
from fastweights.launch.cli.parser import Parser
from fastweights.training import open_agent

STEMS = ("resnet", "shallow", "shallow_norm", "shallow_soft_centred", "shallow_centred")
DRAWS = 5  # untrained copies of each stem
GAMES = 4
EARLIER = 50  # agent steps before the first frame used, because all games start alike
STEPS = 150  # agent steps whose frames are used


class Told(NamedTuple):
    """Statistics of one stem's features over all frames."""

    mean: float  # of the features
    spread: float  # standard deviation over frames, averaged over features
    silent_features: float  # share of all features
    silent_filters: float  # share of the filters in the first layer that ends in a ReLU
    constant: float  # root mean square of the mean outputs of the fully connected layer
    varying: float  # root mean square of the deviations of its outputs from their means


class Heard(NamedTuple):
    """Tensors that a stem computed, one per call in each list."""

    features: list[Tensor]  # [N, F]
    filters: list[Tensor]  # [N, C, Y, X], of the first layer that ends in a ReLU, after it
    outputs: list[Tensor]  # [N, F], outputs of the fully connected layer


def told(features: Tensor, filters: Tensor, outputs: Tensor) -> Told:
    """Compute the statistics of the tensors from all calls."""
    quiet = (features <= 0).all(0), (filters <= 0).all(0).flatten(1).all(1)
    silent = (one.float().mean().item() for one in quiet)
    constant = outputs.mean(0)
    sizes = (part.square().mean().sqrt().item() for part in (constant, outputs - constant))
    return Told(features.mean().item(), features.std(0).mean().item(), *silent, *sizes)


@contextmanager
def listening(stem: ImageStem, first_frames: int | None = None) -> Iterator[Heard]:
    """Record the stem's tensors in every call inside the block.

    Of each call's frames, only the `first_frames` are used, except blank frames (`flicker`).
    """
    heard, counted = Heard([], [], []), []  # numbers of the frames of each call
    rectifiers = (module for module in stem.convolutions if isinstance(module, nn.ReLU))
    first = next(rectifiers, stem.convolutions)  # the output of all is rectified by the stem

    def count(module: nn.Module, x: tuple[Tensor]) -> None:
        counted.append(x[0][:first_frames].flatten(1).any(1).nonzero()[:, 0])

    def into(parts: list[Tensor]) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda module, x, y: parts.append(y.detach()[counted[-1]].float())

    with ExitStack() as hooks:
        hooks.enter_context(stem.register_forward_pre_hook(count))
        layers = stem, first, stem.project
        for layer, parts in zip(layers, heard, strict=True):
            hooks.enter_context(layer.register_forward_hook(into(parts)))
        yield heard


def _all(heard: Heard, first_call: int = 0) -> Told:
    features, filters, outputs = (torch.cat(parts[first_call:]) for parts in heard)
    return told(features, filters.relu(), outputs)


def frames_of(game: str) -> Tensor:
    """Return frames [N, C, Y, X] of games played with random actions."""
    games = envs.make(game, GAMES, seed=1)
    if len(games.frame_shape) != 3:
        raise UserError(
            f"{game} has no image observations, which image stems need; choose an Atari game"
        )
    draws, frames = np.random.default_rng(1), []
    row = games.reset()
    for step in range(EARLIER + STEPS):
        if step >= EARLIER:
            frames.append(torch.as_tensor(row.frame).clone())
        row = games.step(draws.integers(games.num_actions, size=GAMES))
    games.close()
    return torch.cat(frames)


@torch.no_grad()
def drawn(name: str, frames: Tensor) -> Told:
    """Return medians over `DRAWS` untrained copies of a stem."""
    found = []
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        stem = build_stem(name, tuple(frames.shape[1:]))
        with listening(stem) as heard:
            stem(frames)
        found.append(_all(heard))
    return Told(*map(statistics.median, zip(*found, strict=True)))


def trained(path: Path, game: str) -> tuple[str, Told]:
    """Return an agent's name, and its stem's statistics while it plays with sampled actions."""
    agent = open_agent(path)
    if agent.options.env != game or not isinstance(agent.network.stem, ImageStem):
        raise UserError(
            f"{path} is not an agent for {game} with image input; leave it out, or set --env"
        )
    games = environments_of_plan(agent.options, GamePlan(), GAMES, 1)
    player = Player(agent.network, games, action_mode="sampled", seed=1)
    with listening(agent.network.stem, GAMES) as heard:  # the player pads a block of games
        for _ in range(EARLIER + STEPS):
            player.step()
    games.close()
    options = agent.options
    name = f"{options.stem}: {options.core} after {agent.step:,} agent steps ({path})"
    return name, _all(heard, EARLIER)


def table(game: str, rows: dict[str, Told]) -> Table:
    silent = ("silent features", "silent filters")
    titles = ("stem", "mean", "spread over frames", *silent, "constant", "varying")
    shown = Table(*titles, title=f"{game}: features of a stem, and outputs of its last layer")
    for name, one in rows.items():
        shares = (f"{share:.0%}" for share in (one.silent_features, one.silent_filters))
        sizes = (f"{size:.4f}" for size in (one.mean, one.spread, one.constant, one.varying))
        mean, spread, constant, varying = sizes
        shown.add_row(name, mean, spread, *shares, constant, varying)
    return shown


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--env", default="Pong", help="game (default Pong)")
    parser.add_argument(
        "--runs", nargs="*", type=Path, default=[], help="run folders of agents that play this game"
    )
    parser.add_argument("--json", type=Path, help="file for the machine and the statistics")
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    check_folder(options.json)
    machine = describe()
    try:
        frames = frames_of(options.env)
    except ValueError as error:
        raise UserError(str(error)) from error
    rows = {f"{name}, as drawn": drawn(name, frames) for name in STEMS}
    rows |= dict(trained(path, options.env) for path in options.runs)
    Console(width=120).print(table(options.env, rows))
    found: dict[str, Any] = {name: one._asdict() for name, one in rows.items()}
    write_json(options.json, {"machine": machine, "game": options.env, "stems": found})


if __name__ == "__main__":
    main()
