"""Tables that commands print."""

from collections.abc import Mapping

import torch
from rich.table import Table

from agents.network import Network, NetworkConfig, count_parameters
from cores import CORES
from launch.evaluation import Evaluation

_ATARI_FRAMES, _ATARI_ACTIONS = (4, 84, 84), 18


def evaluation_table(evaluations: Mapping[str, Evaluation]) -> Table:
    """One column an evaluation; mean and standard deviation over its episodes or lives."""
    first = next(iter(evaluations.values()))
    title = f"{first.env} · {first.protocol} · {first.action_mode} actions"
    table = Table("", title=title)
    for name in evaluations:
        table.add_column(name, justify="right")
    rows = {
        "full-game return": lambda s: _spread(s["full_game_mean"], s["full_game_std"]),
        "per-life return": lambda s: _spread(s["life_mean"], s["life_std"]),
        "games, lives": lambda s: f"{s['episodes']:,}, {s['lives']:,}",
        "agent steps a game": lambda s: f"{s['mean_agent_steps']:,.0f}",
        "emulator frames a game": lambda s: f"{s['mean_emulator_frames']:,.0f}",
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(evaluation.summary()) for evaluation in evaluations.values()))
    return table


def _spread(mean: float, std: float) -> str:
    digits = 1 if max(abs(mean), std) >= 10 else 2
    return f"{mean:,.{digits}f} ± {std:,.{digits}f}"


def core_table() -> Table:
    """Every core: parameters of the whole Atari agent with 18 actions, equation and source."""
    table = Table(title=f"Cores (parameters: whole agent, large ResNet, {_ATARI_ACTIONS} actions)")
    table.add_column("--core", style="bold", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("equation")
    table.add_column("source")
    for name, kind in CORES.items():
        with torch.device("meta"):  # shapes only: nothing is allocated
            agent = Network(
                NetworkConfig(frame_shape=_ATARI_FRAMES, num_actions=_ATARI_ACTIONS, core=name)
            )
        millions = f"{count_parameters(agent) / 1e6:.3f} M"
        table.add_row(name, millions, kind.equation, kind.source)
    return table
