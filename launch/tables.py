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
    summaries = [evaluation.summary() for evaluation in evaluations.values()]
    rows = {
        "full-game return": "{full_game_mean:,.1f} ± {full_game_std:,.1f}",
        "per-life return": "{life_mean:,.1f} ± {life_std:,.1f}",
        "games, lives": "{episodes:,}, {lives:,}",
        "agent steps a game": "{mean_agent_steps:,.0f}",
        "emulator frames a game": "{mean_emulator_frames:,.0f}",
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell.format(**summary) for summary in summaries))
    return table


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
