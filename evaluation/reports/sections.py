"""The sections of a report, each a list of blocks; empty if there is nothing to report."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from fastweights.evaluation.published_scores import recurrent_fwp
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
from fastweights.evaluation.reports.curves import agent_steps, column_numbers, hours, return_curve
from fastweights.evaluation.reports.document import Block, Figure, Heading, Links, Table, Text
from fastweights.evaluation.reports.runs import Group, LoggedRun, differing, shown
from fastweights.evaluation.reports.scores import (
    PAPER_STEPS,
    Rule,
    Score,
    games_of,
    games_played,
    human_normalised,
    normalised,
    rules,
    scores,
    scores_in,
    statistics_of,
    unequal_steps,
)
from fastweights.evaluation.score_summary import Spread, remarks
from fastweights.evaluation.statistics import STATISTICS
from fastweights.evaluation.training_returns import (
    FULL_GAME,
    LIFE,
    Unit,
    count_ended,
    measured_unit,
    shortfall,
)
from fastweights.host import typed_command

_SMOOTHED = "Curves are smoothed: in long runs, each point is the mean over a fiftieth of the run."
_POLICY = (
    "KL divergence between the acting and the learned policy, fraction of probability ratios "
    "beyond the clip range, and fraction of the value targets' variance that the value head "
    f"explains, cut to [-1, 1]. {_SMOOTHED}"
)
_THROUGHPUT = (
    "Agent steps per second over time; policy lag over agent steps, unless it is always 0. "
    f"{_SMOOTHED}"
)


def report_sections(
    groups: Sequence[Group], pairs: Sequence[tuple[str, str]], folder: Path
) -> list[Block]:
    """Return the whole report; `pairs` of cores to compare (none: the paper's pairs with runs).

    Links are relative to `folder`.
    """
    runs = [run for group in groups for run in group.runs]
    found = scores(groups)
    return [
        *overview(runs),
        *learning(groups),
        *score_tables(found),
        *comparisons(found, groups, pairs),
        *configurations(groups),
        *speed(groups),
        *links(runs, folder),
    ]


def overview(runs: Sequence[LoggedRun]) -> list[Block]:
    """Return the table of all runs."""
    records = [
        {
            "run": run.name,
            "game": run.game,
            "core": run.core,
            "seed": str(run.seed),
            "agent steps": f"{run.agent_steps:,}",
            "last 100 games": _last_return(run),
            "games": f"{count_ended(run.logs, FULL_GAME):,}",
            "state": "finished" if run.meta.get("successful") else "not finished",
            "revision": revision(run),
        }
        for run in runs
    ]
    caption = (
        "All runs. Training returns are full-game returns, undiscounted and unclipped: the mean of "
        "the last 100 games, or of all games if fewer have ended."
    )
    return [Heading("Runs"), Table.of_records(caption, records)]


def learning(groups: Sequence[Group]) -> list[Block]:
    """Return the learning curves, by game."""
    styles = figures.line_styles([group.label for group in groups])
    blocks: list[Block] = [Heading("Learning curves")]
    for index, (game, members) in enumerate(_by_game(groups).items()):
        units = [measured_unit(r.logs, r.num_envs) for group in members for r in group.runs]
        unit = FULL_GAME if FULL_GAME in units else LIFE
        drawing = figures.learning_curves(members, unit, styles)
        if drawing is not None:
            ends = (f"{group.label}: {_end(group, unit)}" for group in members)
            alt = (
                f"Returns per {unit.name}, once as many have ended as a run has environments. "
                "Thick lines are means over seeds, where all of them have points; thin lines are "
                "seeds; the band spans the lowest to the highest. Hours exclude pauses. "
                f"At the end: {'; '.join(ends)}."
            )
            title = f"Training returns on {game}"
            blocks.append(Figure(f"learning-{index}", figures.svg(drawing), title, alt))
        blocks += _shortfalls(members, unit)
        blocks += _how_it_learned(f"learner-{index}", game, members, styles)
    return blocks


def _how_it_learned(
    name: str, game: str, groups: Sequence[Group], styles: figures.Styles
) -> list[Block]:
    """Return diagnostics of the learner; runs of earlier revisions did not log them."""
    drawing = figures.learner({group.label: group for group in groups}, styles)
    if drawing is None:
        return []
    return [Figure(name, figures.svg(drawing), f"How far the policy moved on {game}", _POLICY)]


def _shortfalls(groups: Sequence[Group], unit: Unit) -> list[Text]:
    """Return notes about short runs, equal cases together."""
    cases: dict[str, list[str]] = {}
    for run in (run for group in groups for run in group.runs):
        if said := shortfall(run.logs, run.num_envs, unit):
            cases.setdefault(said.consequence, []).append(f"{run.name}: {said.happened}")
    return [Text(f"{'; '.join(runs)}. {consequence}") for consequence, runs in cases.items()]


def score_tables(found: Sequence[Score]) -> list[Block]:
    """Return the tables of test scores."""
    blocks: list[Block] = [Heading("Test scores")]
    if not found:
        return [*blocks, Text(f"No test episodes yet: {typed_command('evaluate')} RUN plays them.")]
    for env in dict.fromkeys(score.env for score in found):
        for rule, same in rules([score for score in found if score.env == env]).items():
            blocks += _score_tables(env, rule, same)
            blocks += [note for score in same for note in _notes(score)]
    for rule, same in rules(found).items():
        for one_set in normalised(same):
            rows = [
                [label, *(interval(estimates[name]) for name in STATISTICS)]
                for label, estimates in statistics_of(one_set).items()
            ]
            caption = (
                f"Human-normalised full games over {games_of(one_set)}, {rule.action_mode} "
                f"actions, {rule.protocol}; {INTERVALS}."
            )
            blocks.append(Table(caption, ["core", *STATISTICS], rows))
            if caution := unequal_steps(scores_in(one_set, same)):
                blocks.append(Text(caution))
    return blocks


def _score_tables(env: str, rule: Rule, scores: Sequence[Score]) -> list[Table]:
    """Return separate tables of full games and lives, because they are not comparable.

    In games with one life, a life is the game, so the paper's scores stand beside full games.
    """
    normalised, papers = _normalised_column(scores), _papers(env, scores)
    if not any(one.has_lives for score in scores for one in score.evaluations):
        return [_score_table(env, rule, scores, normalised | papers)]
    tables = [
        _score_table(env, rule._replace(unit=unit), scores, others)
        for unit, others in {FULL_GAME: normalised, LIFE: papers}.items()
    ]
    return tables if rule.unit is FULL_GAME else tables[::-1]


def _score_table(
    env: str, rule: Rule, scores: Sequence[Score], others: Mapping[str, Sequence[str]]
) -> Table:
    """Return a table of the rule's unit, then `others`, without empty columns."""
    caption = (
        f"{env}: {rule}, {games_played(scores)}. Means ± standard deviations; the table says over "
        "what."
    )
    if set(others.get("normalised", "-")) != {"-"}:
        caption += " Normalised: full-game score; 0 is random play and 1 a human tester."
    columns = {
        "core": [score.group.label for score in scores],
        "agent steps": [score.agent_steps for score in scores],
        "per life" if rule.unit is LIFE else "full game": [_cell(s, rule.unit) for s in scores],
        "± over": [score.spread(rule.unit.tested).over for score in scores],
        **others,
    }
    columns = {name: cells for name, cells in columns.items() if set(cells) != {"-"}}
    return Table(caption, list(columns), list(zip(*columns.values(), strict=True)))


def _normalised_column(scores: Sequence[Score]) -> dict[str, list[str]]:
    values = [human_normalised(score) for score in scores]
    return {"normalised": ["-" if value is None else f"{value:z.3f}" for value in values]}


def _papers(env: str, scores: Sequence[Score]) -> dict[str, list[str]]:
    """Return the paper's per-life scores, over five repeats of one training seed."""
    columns = {}
    for steps in PAPER_STEPS:
        published = [recurrent_fwp().get((env, steps, score.group.core)) for score in scores]
        cells = ["-" if one is None else f"{one.mean:,g} ± {one.std:,g}" for one in published]
        columns[f"paper, {steps // 1_000_000} M steps (per life)"] = cells
    return columns


def configurations(groups: Sequence[Group]) -> list[Block]:
    """Return the tables of options: those that differ, one row per group, and the shared ones."""
    runs = [group.runs[0] for group in groups]
    names = differing(runs)
    shared = {n: v for n, v in sorted(runs[0].computed().items()) if n not in names}
    blocks: list[Block] = [Heading("Options")]
    if names:
        rows = [
            [
                ", ".join(run.name for run in group.runs),
                *(shown(group.runs[0].computed().get(name)) for name in names),
            ]
            for group in groups
        ]
        caption = "Options that differ (apart from the seed). -: the core's or program's default."
        blocks.append(Table(caption, ["run", *names], rows))
    rows = [[name, shown(value)] for name, value in shared.items() if value is not None]
    caption = "Options that all runs share, without those left unset."
    return [*blocks, Table(caption, ["option", "value"], rows)]


def speed(groups: Sequence[Group]) -> list[Block]:
    """Return throughput and policy lag."""
    records = []
    for run in (run for group in groups for run in group.runs):
        rates = _finite(run, "agent_steps_per_second")
        rate = median(rates) if len(rates) else None
        records.append(
            {
                "run": run.name,
                "agent steps/s": number(rate),
                "emulator frames/s": number(None if rate is None else rate * run.frames_per_step),
                "hours": _hours(run),
                "updates": number(_last(run, "updates")),
                "policy lag": _lag(_finite(run, "policy_lag")),
                "machine": machine(run),
            }
        )
    caption = "Median rate over log rows; policy lag in updates, mean and maximum."
    blocks: list[Block] = [Heading("Throughput"), Table.of_records(caption, records)]
    styles = figures.line_styles([group.label for group in groups])
    for index, (game, members) in enumerate(_by_game(groups).items()):
        drawing = figures.throughput({group.label: group for group in members}, styles)
        if drawing is not None:
            title = f"Throughput on {game}"
            blocks.append(Figure(f"throughput-{index}", figures.svg(drawing), title, _THROUGHPUT))
    return blocks


def _by_game(groups: Sequence[Group]) -> dict[str, list[Group]]:
    games: dict[str, list[Group]] = {}
    for group in groups:
        games.setdefault(group.game, []).append(group)
    return games


def _lag(updates: np.ndarray) -> str:
    if not len(updates):
        return "-"
    return f"{updates.mean():.2f}, at most {updates.max():g}" if updates.any() else "0"


def _hours(run: LoggedRun) -> str:
    total = hours(run)[-1]
    return f"{total:.2f}" if np.isfinite(total) else "-"


def links(runs: Sequence[LoggedRun], folder: Path) -> list[Block]:
    """Return links to clips and test episodes."""
    files = [
        (f"{run.name}: {path.relative_to(run.path)}", os.path.relpath(path, folder))
        for run in runs
        for path in (*run.clips, *run.evaluations)
    ]
    if not files:
        return []
    text = "Links work as long as the run folders stay in place relative to this report."
    return [Heading("Clips and test episodes"), Text(text), Links(files)]


def _cell(score: Score, unit: Unit) -> str:
    return f"{score.spread(unit.tested)}{' †' if _notes(score) else ''}"


def _notes(score: Score) -> list[Text]:
    return [
        Text(f"† {score.kind}, {run.name}: {line}.")
        for run, evaluation in score.tested
        for line in remarks(evaluation)
    ]


def _last_return(run: LoggedRun) -> str:
    last = _last(run, FULL_GAME.recent)
    return "-" if last is None else str(Spread(last, None, ""))


def _last(run: LoggedRun, column: str) -> float | None:
    values = _finite(run, column)
    return values[-1] if len(values) else None


def _end(group: Group, unit: Unit) -> str:
    """Return the final training means: over seeds, with the lowest and the highest."""
    drawn = (return_curve(run, unit, agent_steps).y for run in group.runs)
    ends = [values[-1] for values in drawn if len(values)]
    if not ends:
        return "not measured"
    spread = f", {number(min(ends))} to {number(max(ends))}" if len(ends) > 1 else ""
    return f"{number(sum(ends) / len(ends))} ({count(len(ends), 'seed')}{spread})"


def _finite(run: LoggedRun, column: str) -> np.ndarray:
    values = column_numbers(run, column)
    return values[np.isfinite(values)]
