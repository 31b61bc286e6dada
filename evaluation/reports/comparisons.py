"""The report's section that compares cores, over games and game by game.

Scores are compared under one rule at a time. The paper's scores are per life, so they have a
separate table, which covers the games of the report's runs.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fastweights.evaluation.reports import figures
from fastweights.evaluation.reports.cells import INTERVALS, count, interval, number, signed_interval
from fastweights.evaluation.reports.document import Block, Figure, Heading, Table, Text
from fastweights.evaluation.reports.runs import Group
from fastweights.evaluation.reports.scores import (
    PAPER_PAIRS,
    PAPER_STEPS,
    Normalised,
    Rule,
    Score,
    compared,
    games_of,
    games_played,
    matched,
    normalised,
    not_compared,
    other_options,
    paper_scores,
    relative_improvements,
    rules,
    scores_in,
    unequal_steps,
)
from fastweights.evaluation.statistics import (
    Comparison,
    estimate,
    performance_profile,
    probability_of_improvement,
)

_RESAMPLES = 2_000
_MANY_SEEDS = 5
_THRESHOLDS = 101  # thresholds of a profile, evenly spaced


def comparisons(
    found: Sequence[Score], groups: Sequence[Group], pairs: Sequence[tuple[str, str]]
) -> list[Block]:
    """Return the section; `pairs` of cores to compare (none: the paper's pairs with runs)."""
    present = {group.core for group in groups}
    pairs = pairs or [pair for pair in PAPER_PAIRS if present.issuperset(pair)]
    blocks: list[Block] = []
    for index, (rule, scores) in enumerate(rules(found).items(), 1):
        for number_of_set, games in enumerate(normalised(scores), 1):
            caution = unequal_steps(scores_in(games, scores))
            blocks.append(_profiles(games, rule, caution, f"profiles-{index}-{number_of_set}"))
        blocks += _probabilities(scores, rule, pairs)
        for one, other in pairs:
            blocks += _improvements(scores, rule, index, one, other)
    for one, other in pairs:
        if not any(matched(scores, one, other) for scores in rules(found).values()):
            said = f"{one} over {other}: no game has test scores of both under the same rule."
            blocks.append(Text(said))
        blocks += _papers(groups, one, other)
    return [Heading("Comparisons"), *blocks] if blocks else []


def _profiles(groups: Normalised, rule: Rule, caution: str, name: str) -> Figure:
    every = np.concatenate([runs for games in groups.values() for runs in games.values()])
    levels = np.linspace(min(0.0, every.min()), max(1.0, every.max()), _THRESHOLDS)
    profiles = {
        label: estimate(performance_profile(levels), games, resamples=_RESAMPLES)
        for label, games in groups.items()
    }
    human = performance_profile([1.0])
    words = (
        f"{label}: {human([np.array(runs) for runs in games.values()])[0] * 100:.0f} %"
        for label, games in groups.items()
    )
    alt = (
        "Fraction of runs whose full-game score exceeds the value on the x axis "
        f"({_played(rule)}), over {games_of(groups)}, weighted equally; 0 is random play and 1 a "
        "human. Bands are 95 % stratified bootstrap intervals, drawn if each game has two seeds. "
        f"Above human: {'; '.join(words)}. {caution}"
    ).strip()
    drawing = figures.svg(figures.profiles(levels, profiles))
    return Figure(name, drawing, "Performance profiles", alt)


def _probabilities(
    found: Sequence[Score], rule: Rule, pairs: Sequence[tuple[str, str]]
) -> list[Block]:
    rows = []
    for one, other in pairs:
        both = matched(found, one, other)
        if len(both) > 1:
            sides = (
                {game: pair[k].means(rule.unit.tested) for game, pair in both.items()}
                for k in (0, 1)
            )
            chance = estimate(probability_of_improvement, *sides, resamples=_RESAMPLES)
            rows.append([f"{one} over {other}", str(len(both)), interval(chance)])
    caption = (
        f"Probability of improvement ({rule}): the probability that a run of one core scores above "
        f"a run of the other on the same game, averaged over games; ties count half; {INTERVALS}."
    )
    return [Table(caption, ["cores", "games", "probability"], rows)] if rows else []


def _improvements(
    found: Sequence[Score], rule: Rule, index: int, one: str, other: str
) -> list[Block]:
    pairs = matched(found, one, other)
    results = {env: compared(*pair) for env, pair in pairs.items()}
    if not results:
        return []
    rows = [_row(env, *results[env], pairs[env]) for env in pairs]
    caption = (
        f"{one} compared to {other}: {rule}, {games_played([s for p in pairs.values() for s in p])}"
        ". Intervals are 95 % percentile bootstraps over the entries named in the last column; "
        f"- if there are too few, or if {other} may score 0."
    )
    head = ["game", one, other, "difference", "relative improvement", "seeds", "interval over"]
    blocks: list[Block] = [Table(caption, head, rows), *_cautions(found, pairs, results)]
    percents = {env: r.percent for env, (r, _) in results.items() if r.percent is not None}
    if percents:
        better = sum(percent.value > 0 for percent in percents.values())
        alt = (
            f"100 (a - b) / |b| percent ({rule}), with 95 % intervals as in the table; {one} is "
            f"better in {better} of {count(len(percents), 'game')}."
        )
        drawing = figures.svg(figures.improvements(percents, one, other))
        name = f"improvement-{one}-{other}-{index}"
        blocks.append(Figure(name, drawing, f"{one} compared to {other}", alt))
    return blocks


def _row(env: str, result: Comparison, over: str, pair: tuple[Score, Score]) -> list[str]:
    return [
        env,
        number(result.ours),
        number(result.theirs),
        signed_interval(result.difference),
        "-" if result.percent is None else signed_interval(result.percent, " %"),
        " and ".join(str(len(score.tested)) for score in pair),
        over,
    ]


def _cautions(
    found: Sequence[Score],
    pairs: Mapping[str, tuple[Score, Score]],
    results: Mapping[str, tuple[Comparison, str]],
) -> list[Text]:
    """Return notes about intervals, training lengths, differing options, and groups left out."""
    one, other = (score.group.core for score in next(iter(pairs.values())))
    zero = [env for env, (result, _) in results.items() if result.percent is None]
    behind = not_compared(found, pairs, one, other)
    options = (f"{env}: {', '.join(n)}" for env, p in pairs.items() if (n := other_options(*p)))
    unequal = "; ".join(options)
    single = [env for env, (_, over) in results.items() if over == "test games"]
    few = [
        env
        for env, (_, over) in results.items()
        if over == "training seeds" and min(len(s.tested) for s in pairs[env]) < _MANY_SEEDS
    ]
    said = [
        f"Only one training seed on at least one side: {'; '.join(single)}. Such an interval shows "
        "how precisely the test games measure these agents. It does not show how another seed of "
        "the same cores would score."
        if single
        else "",
        f"Fewer than {_MANY_SEEDS} training seeds on one side: {'; '.join(few)}. An interval "
        "over so few seeds is too narrow, because it resamples only the available seeds."
        if few
        else "",
        f"No relative improvement, because {other} scores 0: {'; '.join(zero)}." if zero else "",
        unequal_steps([score for pair in pairs.values() for score in pair]),
        f"Options that differ, apart from the core's: {unequal}." if unequal else "",
        "Left out, because other groups of these cores share more options or come first: "
        f"{'; '.join(behind)}."
        if behind
        else "",
    ]
    return [Text(sentence) for sentence in said if sentence]


def _papers(groups: Sequence[Group], one: str, other: str) -> list[Block]:
    """Return the paper's scores on the runs' games."""
    played = dict.fromkeys(run.env for group in groups for run in group.runs)
    sides = {steps: (paper_scores(one, steps), paper_scores(other, steps)) for steps in PAPER_STEPS}
    improved = {steps: relative_improvements(*both) for steps, both in sides.items()}
    rows = []
    for env in (env for env in played if any(env in games for games in improved.values())):
        row = [env]
        for steps, games in improved.items():
            row += [number(side.get(env)) for side in sides[steps]]
            row.append(f"{games[env]:+,.0f} %" if env in games else "-")
        rows.append(row)
    if not rows:
        return []
    wins = (
        f"{sum(v > 0 for v in games.values())} of its {len(games)} games at {_millions(steps)}"
        for steps, games in improved.items()
    )
    caption = (
        f"{one} compared to {other} in Irie et al. 2021, Tables 9 and 10: per-life returns, not "
        "full-game returns. The paper has one training seed per game, so no interval over seeds "
        f"can be given. {one} is better in {' and '.join(wins)}."
    )
    head = [
        f"{what}, {_millions(steps)}"
        for steps in PAPER_STEPS
        for what in (one, other, "improvement")
    ]
    return [Table(caption, ["game", *head], rows)]


def _millions(steps: int) -> str:
    return f"{steps // 1_000_000} M"


def _played(rule: Rule) -> str:
    return f"{rule.protocol}, {rule.action_mode} actions"
