"""The report's section on how cores compare, over games and game by game."""

from collections.abc import Sequence

import numpy as np

from launch.reports import figures
from launch.reports.cells import INTERVALS, count, interval
from launch.reports.document import Block, Figure, Heading, Table, Text
from launch.reports.runs import Group
from launch.reports.scores import (
    PAPER_PAIRS,
    PAPER_STEPS,
    Score,
    core_scores,
    normalised,
    not_counted,
    paper_scores,
    relative_improvements,
)
from launch.score_statistics import (
    estimate,
    mean,
    performance_profile,
    probability_of_improvement,
)

_RESAMPLES = 2_000
_THRESHOLDS = 101  # of a profile, evenly spaced


def comparisons(
    found: Sequence[Score], groups: Sequence[Group], pairs: Sequence[tuple[str, str]]
) -> list[Block]:
    """`pairs` of cores to compare (none: the paper's, where both have runs)."""
    present = {group.core for group in groups}
    pairs = pairs or [pair for pair in PAPER_PAIRS if present.issuperset(pair)]
    improvements = [_improvements(found, one, other) for one, other in pairs]
    blocks = [*_profiles(found), *_probabilities(found, pairs), *improvements]
    return [Heading("Comparisons"), *blocks] if blocks else []


def _profiles(found: Sequence[Score]) -> list[Block]:
    kinds = normalised(found)
    if not kinds:
        return []
    every = np.concatenate([runs for games in kinds.values() for runs in games.values()])
    levels = np.linspace(min(0.0, every.min()), max(1.0, every.max()), _THRESHOLDS)
    profiles = {
        kind: estimate(performance_profile(levels), games, resamples=_RESAMPLES)
        for kind, games in kinds.items()
    }
    human = performance_profile([1.0])
    words = (
        f"{kind}: {human([np.array(runs) for runs in games.values()])[0]:.0%}"
        for kind, games in kinds.items()
    )
    alt = (
        "Share of runs whose full games score above the value on the x axis, all games counting "
        "alike; 0 is random play and 1 a human. Bands are 95 % stratified bootstrap intervals, "
        f"drawn where some game has two seeds. Above a human: {'; '.join(words)}."
    )
    drawing = figures.profiles(levels, profiles)
    return [Figure("profiles", drawing, "Performance profiles", alt)]


def _probabilities(found: Sequence[Score], pairs: Sequence[tuple[str, str]]) -> list[Block]:
    rows = []
    for one, other in pairs:
        for protocol, mode in _kinds(found):
            ours, theirs = (core_scores(found, core, protocol, mode) for core in (one, other))
            games = [game for game in ours if game in theirs]
            if len(games) > 1:
                both = ({game: runs[game] for game in games} for runs in (ours, theirs))
                chance = estimate(probability_of_improvement, *both, resamples=_RESAMPLES)
                played = [f"{protocol}, {mode}", str(len(games))]
                rows.append([f"{one} over {other}", *played, interval(chance)])
    caption = (
        "Probability of improvement: that a run of one core scores above a run of the other on the "
        f"same game, mean over games, ties counting half; {INTERVALS}."
    )
    head = ["cores", "protocol, actions", "games", "probability"]
    return [Table(caption, head, rows)] if rows else []


def _improvements(found: Sequence[Score], one: str, other: str) -> Block:
    sides = {
        f"these runs, {protocol}, {mode}": [
            {game: float(mean([np.array(runs)])) for game, runs in scores.items()}
            for scores in (core_scores(found, core, protocol, mode) for core in (one, other))
        ]
        for protocol, mode in _kinds(found)
    } | {
        f"paper, {steps // 1_000_000} M": [paper_scores(core, steps) for core in (one, other)]
        for steps in PAPER_STEPS
    }
    series = {name: relative_improvements(*scores) for name, scores in sides.items()}
    series = {name: values for name, values in series.items() if values}
    unsaid = _left_out(found, one, other, sides)
    if not series:
        return Text(f"{one} over {other}: no game has a test score of both to compare.{unsaid}")
    words = (
        f"{name}: {sum(v > 0 for v in values.values())} of {count(len(values), 'game')} better"
        for name, values in series.items()
    )
    alt = f"100 (a - b) / |b| percent of {one} over {other}; {'; '.join(words)}.{unsaid}"
    drawing = figures.improvements(series, one, other)
    return Figure(f"improvement-{one}-{other}", drawing, f"{one} compared to {other}", alt)


def _left_out(
    found: Sequence[Score], one: str, other: str, sides: dict[str, list[dict[str, float]]]
) -> str:
    """In whole sentences, each after a space."""
    zero = [
        f"{game} ({name})"
        for name, (ours, theirs) in sides.items()
        for game in ours
        if theirs.get(game) == 0
    ]
    groups = [label for core in (one, other) for label in not_counted(found, core)]
    reasons = {f"{other} scores 0 there": zero, "another group of the core comes first": groups}
    return "".join(
        f" Left out, as {reason}: {'; '.join(names)}." for reason, names in reasons.items() if names
    )


def _kinds(found: Sequence[Score]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((score.protocol, score.action_mode) for score in found))
