"""Tables that commands print."""

from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from fastweights.agents import Network, NetworkConfig, count_parameters
from fastweights.cores import CORES
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.published_scores import random_and_human, recurrent_fwp
from fastweights.evaluation.score_summary import Spread, over_episodes, spread

_ATARI_FRAMES, _ATARI_ACTIONS = (4, 84, 84), 18


def evaluation_table(title: str, evaluations: Mapping[str, Evaluation]) -> Table:
    """Return a table with a column for each evaluation.

    The score, shown where there are repeats, is the mean and standard deviation of the repeats'
    means; returns are the mean and standard deviation over all games or lives.
    """
    first = next(iter(evaluations.values()))
    table = Table("", title=f"{title}: {first.env}, {first.protocol}")
    for name in evaluations:
        table.add_column(name, justify="right")
    unit = "lives" if first.score == "life" else "full games"
    score = {
        f"score ({unit}, {first.repeats} repeats)": lambda s: str(
            Spread(s["score_mean"], s["score_std"], "repeats")
        )
    }
    of_lives = {
        "per-life return": lambda s: str(over_episodes(s, "life")),
        "games, lives": lambda s: f"{s['episodes']:,}, {s['lives']:,}",
    }
    has_lives = any(evaluation.has_lives for evaluation in evaluations.values())
    rows = (score if first.repeats > 1 else {}) | {
        "full-game return": lambda s: str(over_episodes(s, "full_game")),
        **(of_lives if has_lives else {"games": lambda s: f"{s['episodes']:,}"}),
        "agent steps a game": lambda s: f"{s['mean_agent_steps']:,.0f}",
        "emulator frames a game": lambda s: f"{s['mean_emulator_frames']:,.0f}",
    }
    if any(evaluation.summary()["cut_episodes"] for evaluation in evaluations.values()):
        limit = f"reached the limit of {first.max_frames or 0:,} frames"
        rows[limit] = lambda s: f"{s['cut_episodes']} of {s['episodes']} games"
    for name, cell in rows.items():
        table.add_row(name, *(cell(evaluation.summary()) for evaluation in evaluations.values()))
    return table


def comparison_table(evaluations: Mapping[str, Evaluation]) -> Table | None:
    """Return agents' scores of one game beside published ones; None if there are none.

    `evaluations`: by label, all of the same game. Full games and lives have separate columns,
    because they are not comparable.
    """
    env = next(iter(evaluations.values())).env
    reference = random_and_human().get(env)
    if reference is None:
        return None
    table = Table(
        "",
        title=f"{env}: human-normalised is 0 for random play, 1 for human",
        caption="M: million agent steps. Irie et al. 2021 score lives; full games do not compare.",
    )
    for column in ("full game", "human-normalised", "a life", "± over"):
        table.add_column(column, justify="right")
    for name, one in evaluations.items():
        full, life = spread(one, "full_game"), spread(one, "life")
        normalised = f"{reference.normalised(full.mean):.3f}"
        table.add_row(escape(name), str(full), normalised, str(life), full.over)
    table.add_row("random play", f"{reference.random:,.1f}", "0", "-", "-")
    table.add_row("human", f"{reference.human:,.1f}", "1", "-", "-")
    for (game, steps, core), one in recurrent_fwp().items():
        if game == env:
            score = Spread(one.mean, one.std, "5 repeats")
            name = f"{core}, {steps // 10**6} M (Irie et al. 2021)"
            table.add_row(name, "-", "-", str(score), score.over)
    return table


def core_table() -> Table:
    """Return every core with its description, its source, and the parameters of an Atari agent.

    Fast-weight programmers have the paper's systematic names: slow net/update rule, fast net.
    """
    table = Table(title=f"Cores (parameters: whole agent, large ResNet, {_ATARI_ACTIONS} actions)")
    table.add_column("--core", style="bold", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    for column in ("slow net/update rule, fast net", "equation", "source"):
        table.add_column(column, overflow="fold")  # do not truncate names
    for name, kind in CORES.items():
        agent = Network(
            NetworkConfig(frame_shape=_ATARI_FRAMES, num_actions=_ATARI_ACTIONS, core=name)
        )
        millions = f"{count_parameters(agent) / 1e6:.3f} M"
        table.add_row(name, millions, kind.systematic_name, kind.equation, kind.source)
    return table
