"""Summaries of an evaluation in words: mean, spread, and remarks about them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastweights.evaluation.evaluation_file import Evaluation


class Spread(NamedTuple):
    """A mean and a population standard deviation."""

    mean: float
    std: float | None  # None: one value
    over: str  # what the deviation is over: `3 seeds`, `2 repeats`, `episodes`; `-` for one value

    def __str__(self) -> str:
        digits = 1 if max(abs(self.mean), self.std or 0) >= 10 else 2
        mean = f"{self.mean:,.{digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:,.{digits}f}"


def spread(evaluation: Evaluation, what: str) -> Spread:
    """Return the mean, and the standard deviation of the repeats' means (or one repeat's returns).

    `what`: full_game, life or score (the protocol's unit). The mean is over all games or lives of
    all repeats; for score, over the repeats' means.
    """
    name = evaluation.unit.tested if what == "score" else what
    summary = evaluation.summary()
    if evaluation.repeats == 1:
        return over_episodes(summary, name)
    std = summary[f"{name}_std_of_means"]
    return Spread(summary[f"{what}_mean"], std, f"{evaluation.repeats} repeats")


def over_episodes(summary: Mapping[str, Any], name: str) -> Spread:
    """Return mean and standard deviation over all full games or lives in a `summary`.

    `name`: full_game or life; in both cases `over` is `episodes`.
    """
    several = summary["lives" if name == "life" else "episodes"] > 1
    std = summary[f"{name}_std"] if several else None
    return Spread(summary[f"{name}_mean"], std, "episodes" if several else "-")


def remarks(evaluation: Evaluation) -> list[str]:
    """Return remarks about the mean: scores that overflowed, games that were cut."""
    summary, lines = evaluation.summary(), []
    games, wrapped = summary["episodes"], summary["wrapped_episodes"]
    if wrapped:
        without = summary[f"{evaluation.unit.tested}_mean_without_wrapped"]
        left = "none left" if without is None else f"{without:,.1f}"
        lines.append(
            f"the score counter passed {evaluation.score_modulus - 1:,} and restarted from 0 in "
            f"{wrapped} of {games} games: mean score {summary['score_mean']:,.1f} as counted, "
            f"{summary['score_mean_unwrapped']:,.1f} with the lost points, "
            f"{evaluation.unit.plural} without those {left}"
        )
    if cut := cut_games(evaluation):
        lines.append(f"{cut}; their returns until then count")
    return lines


def cut_games(evaluation: Evaluation) -> str:
    """Return the number of games that reached the time limit, in words; empty for none."""
    summary = evaluation.summary()
    if not summary["cut_episodes"]:
        return ""
    games = f"{summary['cut_episodes']} of {summary['episodes']} games"
    return f"{games} reached the limit of {evaluation.max_frames:,} frames"
