"""Tables that commands print."""

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from fastweights.agents import Network, NetworkConfig
from fastweights.cores import CORES, count_parameters
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.published_scores import random_and_human, recurrent_fwp
from fastweights.evaluation.score_summary import Spread, over_episodes, spread

_FULL_WIDTH = 80  # columns of a terminal
_ATARI_FRAMES, _ATARI_ACTIONS = (4, 84, 84), 18


def evaluation_table(title: str, evaluations: Mapping[str, Evaluation]) -> Table:
    """Return a table with one column per evaluation.

    The score, shown if there are repeats, is the mean and standard deviation of the repeats' means;
    returns are the mean and standard deviation over all games or lives.
    """
    first = next(iter(evaluations.values()))
    table = Table("", title=escape(f"{title}: {first.env}, {first.rules_in_words()}"))
    for name in evaluations:
        table.add_column(name, justify="right")
    score = {
        f"score ({first.unit.plural}, {first.repeats} repeats)": lambda s: str(
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
        "agent steps per game": lambda s: f"{s['mean_agent_steps']:,.0f}",
    }
    summaries = [evaluation.summary() for evaluation in evaluations.values()]
    if any(s["mean_emulator_frames"] != s["mean_agent_steps"] for s in summaries):
        rows["emulator frames per game"] = lambda s: f"{s['mean_emulator_frames']:,.0f}"
    if any(s["cut_episodes"] for s in summaries):
        limit = f"reached the limit of {first.max_frames or 0:,} frames"
        rows[limit] = lambda s: f"{s['cut_episodes']} of {s['episodes']} games"
    for name, cell in rows.items():
        table.add_row(name, *map(cell, summaries))
    return table


def comparison_tables(evaluations: Mapping[str, Evaluation]) -> list[Table]:
    """Return tables of agents' scores beside published scores; empty if there are none.

    `evaluations`: by label, all of the same game. Full games and lives have separate tables,
    because they are not comparable.
    """
    env = next(iter(evaluations.values())).env
    reference = random_and_human().get(env)
    if reference is None:
        return []
    full = _plain_table(f"{env}: returns of a full game", ("full game", "± over", "normalised"))
    full.caption = "Human-normalised: 0 is random play, 1 is human."
    for name, one in evaluations.items():
        found = spread(one, "full_game")
        full.add_row(
            escape(name), str(found), found.over, f"{reference.normalised(found.mean):z.3f}"
        )
    full.add_row("random play", f"{reference.random:,.1f}", "-", "0")
    full.add_row("human", f"{reference.human:,.1f}", "-", "1")
    return [full, *_life_tables(env, evaluations)]


def _life_tables(env: str, evaluations: Mapping[str, Evaluation]) -> list[Table]:
    """Return a table of per-life returns beside Irie et al. 2021, a column per training length."""
    published = {key[1:]: one for key, one in recurrent_fwp().items() if key[0] == env}
    if not published:
        return []
    lengths = sorted({steps for steps, _ in published})
    heads = [f"{steps // 10**6} M steps" for steps in lengths]
    table = _plain_table(f"{env}: returns of a life", ("here", *heads))
    table.caption = "50 M and 200 M agent steps: Irie et al. 2021, ± over 5 repeats of one seed."
    for name, one in evaluations.items():
        table.add_row(escape(name), str(spread(one, "life")), *("-" for _ in lengths))
    for core in dict.fromkeys(core for _, core in published):
        found = (published.get((steps, core)) for steps in lengths)
        cells = ("-" if one is None else f"{one.mean:,.0f} ± {one.std:,.0f}" for one in found)
        table.add_row(core, "-", *cells)
    return [table]


def _plain_table(title: str, columns: Sequence[str]) -> Table:
    """Return a table with columns of numbers; a narrow terminal wraps words and truncates none."""
    table = Table(title=title)
    table.add_column("", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table


def core_table(width: int = _FULL_WIDTH) -> Table:
    """Return a table of all cores: description, source, and parameters of an Atari agent.

    Fast-weight programmers have the paper's systematic names: slow net/update rule, fast net. In a
    terminal narrower than 80 columns (`width`), one column holds all words.
    """
    table = Table(title=f"Cores (parameters: whole agent, large ResNet, {_ATARI_ACTIONS} actions)")
    table.add_column("--core", style="bold", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    is_narrow = width < _FULL_WIDTH
    words = ("slow net/update rule, fast net", "equation", "source")
    for column in ["\n".join(words)] if is_narrow else words:
        table.add_column(column, overflow="fold")  # do not truncate names
    for name, kind in CORES.items():
        agent = Network(
            NetworkConfig(frame_shape=_ATARI_FRAMES, num_actions=_ATARI_ACTIONS, core=name)
        )
        millions = f"{count_parameters(agent) / 1e6:.3f} M"
        cells = (kind.systematic_name, kind.equation, kind.source)
        table.add_row(name, millions, *(["\n".join(cells)] if is_narrow else cells))
    return table
