"""The sections of a report, each a list of blocks; an empty list where there is nothing to say."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from launch.reports import figures
from launch.reports.cells import INTERVALS, count, interval, machine, number, revision
from launch.reports.comparisons import comparisons
from launch.reports.curves import RETURN, hours, numbers
from launch.reports.document import Block, Figure, Heading, Links, Table, Text
from launch.reports.runs import Group, Run, differing, shown
from launch.reports.scores import (
    PAPER_STEPS,
    Score,
    human_normalised,
    over_games,
    paper_score,
    scores,
)
from launch.score_statistics import STATISTICS
from launch.score_summary import remarks


def build(groups: Sequence[Group], pairs: Sequence[tuple[str, str]], folder: Path) -> list[Block]:
    """The whole report; `pairs` of cores to compare (none: the paper's, where both have runs).

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
    head = ["run", "game", "core", "seed", "agent steps", "last 100 games", "state", "revision"]
    rows = [
        [
            run.name,
            run.game,
            run.core,
            str(run.seed),
            f"{run.agent_steps:,}",
            number(_last(run, RETURN)),
            "finished" if run.meta.get("successful") else "not finished",
            revision(run),
        ]
        for run in runs
    ]
    caption = "Every run; returns are full games, undiscounted and unclipped."
    return [Heading("Runs"), Table(caption, head, rows)]


def learning(groups: Sequence[Group]) -> list[Block]:
    styles = figures.line_styles([group.label for group in groups])
    blocks: list[Block] = [Heading("Learning curves")]
    for index, game in enumerate(dict.fromkeys(group.game for group in groups)):
        members = [group for group in groups if group.game == game]
        ends = (
            f"{group.label}: {number(_last_mean(group))} ({count(len(group.runs), 'seed')})"
            for group in members
        )
        alt = (
            "Mean over seeds where all of them have points; thin lines are seeds, the band reaches "
            "from the lowest to the highest. Hours leave out pauses. "
            f"At the end: {'; '.join(ends)}."
        )
        drawing = figures.learning_curves(members, styles)
        blocks.append(Figure(f"learning-{index}", drawing, f"Training returns on {game}", alt))
    return blocks


def score_tables(found: Sequence[Score]) -> list[Block]:
    blocks: list[Block] = [Heading("Test scores")]
    if not found:
        return [*blocks, Text("No test episodes yet: python launch/evaluate.py RUN plays them.")]
    head = ["core", "protocol, actions", "agent steps", "full game", "per life", "± over"]
    paper = [f"paper, {steps // 1_000_000} M (per life)" for steps in PAPER_STEPS]
    for env in dict.fromkeys(score.env for score in found):
        rows = [_score_row(score) for score in found if score.env == env]
        caption = (
            f"{env}: mean ± standard deviation of test returns; normalised: of full games, 0 is "
            "random play and 1 a human tester. The paper's scores are returns per life."
        )
        blocks.append(Table(caption, [*head, "normalised", *paper], rows))
        blocks += [note for score in found if score.env == env for note in _notes(score)]
    if statistics := over_games(found):
        rows = [
            [kind, *(interval(estimates[name]) for name in STATISTICS)]
            for kind, estimates in statistics.items()
        ]
        caption = f"Human-normalised full games over all games, {INTERVALS}."
        blocks.append(Table(caption, ["core, protocol, actions", *STATISTICS], rows))
    return blocks


def configurations(runs: Sequence[Run]) -> list[Block]:
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
    drawing = figures.throughput(runs, figures.line_styles([run.name for run in runs]))
    alt = "Left: agent steps a second over hours. Right: updates between acting and learning."
    figure = Figure("throughput", drawing, "Throughput and policy lag", alt)
    return [Heading("Throughput"), Table(caption, head, rows), figure]


def _hours(run: Run) -> str:
    total = hours(run)[-1]
    return f"{total:.2f}" if np.isfinite(total) else "-"


def links(runs: Sequence[Run], folder: Path) -> list[Block]:
    files = [
        (f"{run.name}: {path.relative_to(run.path)}", os.path.relpath(path, folder))
        for run in runs
        for path in (*run.clips, *run.evaluations)
    ]
    if not files:
        return []
    text = "Links work where the run folders still lie beside this report."
    return [Heading("Clips and test episodes"), Text(text), Links(files)]


def _score_row(score: Score) -> list[str]:
    full, life, normalised = (
        score.spread("full_game"),
        score.spread("life"),
        human_normalised(score),
    )
    mark = " †" if _notes(score) else ""
    paper = (paper_score(score.env, score.group.core, steps) for steps in PAPER_STEPS)
    return [
        score.group.label,
        f"{score.protocol}, {score.action_mode}",
        score.agent_steps,
        f"{full}{mark}",
        f"{life}{mark}",
        life.over,
        "-" if normalised is None else f"{normalised:.3f}",
        *("-" if one is None else f"{one.mean:,g} ± {one.std:,g}" for one in paper),
    ]


def _notes(score: Score) -> list[Text]:
    return [
        Text(f"† {score.kind}, {run.name}: {line}.")
        for run, evaluation in score.tested
        for line in remarks(evaluation)
    ]


def _last(run: Run, column: str) -> float | None:
    values = _finite(run, column)
    return values[-1] if len(values) else None


def _last_mean(group: Group) -> float | None:
    ends = [end for run in group.runs if (end := _last(run, RETURN)) is not None]
    return sum(ends) / len(ends) if ends else None


def _finite(run: Run, column: str) -> np.ndarray:
    values = numbers(run, column)
    return values[np.isfinite(values)]
