"""The sections of a report, each a list of blocks; empty if there is nothing to report."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from fastweights.evaluation.reports import figures
from fastweights.evaluation.reports.cells import (
    INTERVALS,
    count,
    interval,
    machine,
    number,
    revision,
)
from fastweights.evaluation.reports.comparisons import comparisons
from fastweights.evaluation.reports.curves import agent_steps, hours, numbers, returns
from fastweights.evaluation.reports.document import Block, Figure, Heading, Links, Table, Text
from fastweights.evaluation.reports.runs import Group, Run, differing, shown
from fastweights.evaluation.reports.scores import (
    PAPER_STEPS,
    Rule,
    Score,
    games_played,
    human_normalised,
    over_games,
    paper_score,
    rules,
    scores,
)
from fastweights.evaluation.score_summary import remarks
from fastweights.evaluation.statistics import STATISTICS
from fastweights.evaluation.training_returns import (
    FULL_GAME,
    LIFE,
    Unit,
    ended,
    measured_unit,
    shortfall,
)
from fastweights.host.commands import typed


def build(groups: Sequence[Group], pairs: Sequence[tuple[str, str]], folder: Path) -> list[Block]:
    """Return the whole report; `pairs` of cores to compare (none: the paper's with runs).

    Links are relative to `folder`.
    """
    runs = [run for group in groups for run in group.runs]
    found = scores(groups)
    return [
        *overview(runs),
        *learning(groups),
        *score_tables(found),
        *comparisons(found, groups, pairs),
        *configurations(runs),
        *speed(runs),
        *links(runs, folder),
    ]


def overview(runs: Sequence[Run]) -> list[Block]:
    """Return the table of all runs."""
    head = [
        "run",
        "game",
        "core",
        "seed",
        "agent steps",
        "last 100 games",
        "games",
        "state",
        "revision",
    ]
    rows = [
        [
            run.name,
            run.game,
            run.core,
            str(run.seed),
            f"{run.agent_steps:,}",
            number(_last(run, FULL_GAME.recent)),
            f"{ended(run.logs, FULL_GAME):,}",
            "finished" if run.meta.get("successful") else "not finished",
            revision(run),
        ]
        for run in runs
    ]
    caption = (
        "Every run. Returns in training are full games, undiscounted and unclipped: the mean of "
        "the last 100, or of all where fewer have ended."
    )
    return [Heading("Runs"), Table(caption, head, rows)]


def learning(groups: Sequence[Group]) -> list[Block]:
    """Return the learning curves, by game."""
    styles = figures.line_styles([group.label for group in groups])
    blocks: list[Block] = [Heading("Learning curves")]
    for index, game in enumerate(dict.fromkeys(group.game for group in groups)):
        members = [group for group in groups if group.game == game]
        units = [measured_unit(r.logs, r.num_envs) for group in members for r in group.runs]
        unit = FULL_GAME if FULL_GAME in units else LIFE
        drawing = figures.learning_curves(members, unit, styles)
        if drawing is not None:
            ends = (f"{group.label}: {_end(group, unit)}" for group in members)
            alt = (
                f"Returns of a {unit.name}, from where as many have ended as a run has "
                "environments. Mean over seeds where all of them have points; thin lines are "
                "seeds, the band reaches from the lowest to the highest. Hours leave out pauses. "
                f"At the end: {'; '.join(ends)}."
            )
            title = f"Training returns on {game}"
            blocks.append(Figure(f"learning-{index}", figures.svg(drawing), title, alt))
        blocks += _shortfalls(members, unit)
    return [*blocks, *_how_it_learned([run for group in groups for run in group.runs])]


def _how_it_learned(runs: Sequence[Run]) -> list[Block]:
    """Return diagnostics of the learner; runs of earlier revisions did not log them."""
    drawing = figures.learner(runs, figures.line_styles([run.name for run in runs]))
    if drawing is None:
        return []
    alt = (
        "KL divergence of the learned policy from the acting one, share of probability ratios "
        "beyond the clip range, and share of the value targets' variance that the value head "
        "explains, cut to [-1, 1]; means of an update."
    )
    return [Figure("learner", figures.svg(drawing), "How far the policy moved", alt)]


def _shortfalls(groups: Sequence[Group], unit: Unit) -> list[Text]:
    """Return notes about short runs, one for equal cases."""
    cases: dict[str, list[str]] = {}
    for run in (run for group in groups for run in group.runs):
        if said := shortfall(run.logs, run.num_envs, unit):
            cases.setdefault(said.consequence, []).append(f"{run.name}: {said.happened}")
    return [Text(f"{'; '.join(runs)}. {consequence}") for consequence, runs in cases.items()]


def score_tables(found: Sequence[Score]) -> list[Block]:
    """Return the tables of test scores."""
    blocks: list[Block] = [Heading("Test scores")]
    if not found:
        return [*blocks, Text(f"No test episodes yet: {typed('evaluate')} RUN plays them.")]
    for env in dict.fromkeys(score.env for score in found):
        for rule, same in rules([score for score in found if score.env == env]).items():
            blocks.append(_score_table(env, rule, same))
            blocks += [note for score in same for note in _notes(score)]
    for rule, same in rules(found).items():
        if statistics := over_games(same):
            rows = [
                [label, *(interval(estimates[name]) for name in STATISTICS)]
                for label, estimates in statistics.items()
            ]
            caption = (
                f"Human-normalised full games over all games ({rule.action_mode} actions, "
                f"{rule.protocol}), {INTERVALS}."
            )
            blocks.append(Table(caption, ["core", *STATISTICS], rows))
    return blocks


def _score_table(env: str, rule: Rule, scores: Sequence[Score]) -> Table:
    """Return a table without columns that are empty in every row."""
    caption = (
        f"{env}: {rule}, {games_played(scores)}. Means ± standard deviations over what the table "
        "names."
    )
    if any(human_normalised(score) is not None for score in scores):
        caption += " Normalised: of full games, 0 is random play and 1 a human tester."
    columns = {
        "core": [score.group.label for score in scores],
        "agent steps": [score.agent_steps for score in scores],
        "full game": [_cell(score, "full_game") for score in scores],
    }
    if any(game.lives > 1 for s in scores for one in s.evaluations for game in one.episodes):
        columns["per life"] = [_cell(score, "life") for score in scores]
    columns["± over"] = [score.spread("full_game").over for score in scores]
    columns["normalised"] = [_normalised(score) for score in scores]
    for steps in PAPER_STEPS:
        published = [paper_score(env, score.group.core, steps) for score in scores]
        cells = ["-" if one is None else f"{one.mean:,g} ± {one.std:,g}" for one in published]
        columns[f"paper, {steps // 1_000_000} M (per life)"] = cells
    columns = {name: cells for name, cells in columns.items() if set(cells) != {"-"}}
    return Table(caption, list(columns), list(zip(*columns.values(), strict=True)))


def configurations(runs: Sequence[Run]) -> list[Block]:
    """Return the tables of options."""
    names = differing(runs)
    shared = {n: v for n, v in sorted(runs[0].computed().items()) if n not in names}
    blocks: list[Block] = [Heading("Options")]
    if names:
        rows = [[name, *(shown(run.computed().get(name)) for run in runs)] for name in names]
        caption = "Options that differ (besides the seed)."
        blocks.append(Table(caption, ["option", *(run.name for run in runs)], rows))
    rows = [[name, shown(value)] for name, value in shared.items()]
    return [*blocks, Table("Options that all runs share.", ["option", "value"], rows)]


def speed(runs: Sequence[Run]) -> list[Block]:
    """Return throughput and policy lag."""
    head = [
        "run",
        "agent steps/s",
        "emulator frames/s",
        "hours",
        "updates",
        "policy lag",
        "machine",
    ]
    rows = []
    for run in runs:
        rate, lag = _finite(run, "agent_steps_per_second"), _finite(run, "policy_lag")
        rows.append(
            [
                run.name,
                number(median(rate) if len(rate) else None),
                number(median(rate) * run.frames_per_step if len(rate) else None),
                _hours(run),
                number(_last(run, "updates")),
                f"{lag.mean():.2f}, at most {lag.max():g}" if len(lag) else "-",
                machine(run),
            ]
        )
    caption = "Median rate of the log rows; policy lag in updates, mean and highest."
    blocks: list[Block] = [Heading("Throughput"), Table(caption, head, rows)]
    drawing = figures.throughput(runs, figures.line_styles([run.name for run in runs]))
    if drawing is None:
        return [*blocks, Text("The logs have neither rates nor policy lags to draw.")]
    alt = (
        "Agent steps a second over time; policy lag over agent steps where it is not 0 throughout."
    )
    return [*blocks, Figure("throughput", figures.svg(drawing), "Throughput and policy lag", alt)]


def _hours(run: Run) -> str:
    total = hours(run)[-1]
    return f"{total:.2f}" if np.isfinite(total) else "-"


def links(runs: Sequence[Run], folder: Path) -> list[Block]:
    """Return links to clips and test episodes."""
    files = [
        (f"{run.name}: {path.relative_to(run.path)}", os.path.relpath(path, folder))
        for run in runs
        for path in (*run.clips, *run.evaluations)
    ]
    if not files:
        return []
    text = "Links work where the run folders still lie beside this report."
    return [Heading("Clips and test episodes"), Text(text), Links(files)]


def _cell(score: Score, what: str) -> str:
    return f"{score.spread(what)}{' †' if _notes(score) else ''}"


def _normalised(score: Score) -> str:
    value = human_normalised(score)
    return "-" if value is None else f"{value:.3f}"


def _notes(score: Score) -> list[Text]:
    return [
        Text(f"† {score.kind}, {run.name}: {line}.")
        for run, evaluation in score.tested
        for line in remarks(evaluation)
    ]


def _last(run: Run, column: str) -> float | None:
    values = _finite(run, column)
    return values[-1] if len(values) else None


def _end(group: Group, unit: Unit) -> str:
    """Return the last training means: over seeds, and from the lowest to the highest."""
    drawn = (returns(run, unit, agent_steps).y for run in group.runs)
    ends = [values[-1] for values in drawn if len(values)]
    if not ends:
        return "not measured"
    spread = f", {number(min(ends))} to {number(max(ends))}" if len(ends) > 1 else ""
    return f"{number(sum(ends) / len(ends))} ({count(len(ends), 'seed')}{spread})"


def _finite(run: Run, column: str) -> np.ndarray:
    values = numbers(run, column)
    return values[np.isfinite(values)]
