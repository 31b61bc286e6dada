"""Test scores of groups of seeds, the paper's scores beside them, and differences between cores.

The relative improvement of a over b is 100 (a - b) / |b| percent, as in the bar charts of Irie et
al. 2021, Figures 1-12.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np

from fastweights.envs import HALF_AN_HOUR, PROTOCOLS
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.published_scores import random_and_human, recurrent_fwp
from fastweights.evaluation.reports.runs import Group, LoggedRun
from fastweights.evaluation.score_summary import Spread, spread
from fastweights.evaluation.statistics import STATISTICS, Comparison, Estimate, compare, estimate
from fastweights.evaluation.training_returns import LIFE, Unit

PAPER_STEPS = (50_000_000, 200_000_000)
# Figures 1-2, 3-4, 5-6, 7-8, 9-10, 11-12.
PAPER_PAIRS = (
    ("rdn", "lt"),
    ("rdn", "lstm"),
    ("feedforward", "lstm"),
    ("rdn", "delta_net"),
    ("delta_rnn", "lstm"),
    ("rdn", "delta_rnn"),
)


class Rule(NamedTuple):
    """The conditions of test games and scores; only scores of one rule are comparable."""

    protocol: str  # as `protocol_played` names it
    action_mode: str
    unit: Unit  # by the protocol

    def __str__(self) -> str:
        name, comma, changes = self.protocol.partition(", ")
        protocol = f"{name} protocol" + (f" ({changes})" if comma else "")
        return f"returns of a {self.unit.name}, {self.action_mode} actions, {protocol}"


class Score(NamedTuple):
    """The newest evaluations of a group's seeds under one protocol and action mode."""

    group: Group
    env: str
    protocol: str  # as `protocol_played` names it
    action_mode: str
    tested: tuple[tuple[LoggedRun, Evaluation], ...]  # one for each seed

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations, one for each seed."""
        return [evaluation for _, evaluation in self.tested]

    @property
    def kind(self) -> str:
        """The name that distinguishes the scores of one game."""
        return f"{self.group.label}, {self.protocol}, {self.action_mode}"

    @property
    def rule(self) -> Rule:
        """The rule of the score."""
        return Rule(self.protocol, self.action_mode, self.evaluations[0].unit)

    @property
    def games(self) -> list[int]:
        """The number of test games of each seed."""
        return [len(evaluation.episodes) for evaluation in self.evaluations]

    @property
    def agent_steps(self) -> str:
        """The agent steps of the agents' training."""
        steps = sorted(one.agent_steps for one in self.evaluations)
        return f"{steps[0]:,}" if steps[0] == steps[-1] else f"{steps[0]:,} to {steps[-1]:,}"

    def spread(self, what: str) -> Spread:
        """Return mean and deviation of `what`: full_game, life or score (the protocol's unit)."""
        means = self.means(what)
        if len(means) > 1:
            return Spread(fmean(means), pstdev(means), f"{len(means)} seeds")
        return spread(self.evaluations[0], what)

    def means(self, what: str) -> list[float]:
        """Return the mean of each seed."""
        return [one.summary()[f"{what}_mean"] for one in self.evaluations]


def scores(groups: Sequence[Group]) -> list[Score]:
    """Return every group's newest scores of the most games, by protocol and mode.

    A seed that was tested only before training is left out where others were tested after it.
    """
    result = []
    for group in groups:
        newest: dict[tuple[str, str, str], list[tuple[LoggedRun, Evaluation]]] = {}
        everything = [one for run in group.runs for one in run.evaluations.values()]
        endless = {_rules(one) for one in everything if _is_endless(one)}
        for run in group.runs:
            order = sorted(run.evaluations.values(), key=lambda e: (e.agent_steps, len(e.episodes)))
            played = {(e.env, protocol_played(e, endless), e.action_mode): e for e in order}
            for key, one in played.items():
                newest.setdefault(key, []).append((run, one))
        for key, tested in newest.items():
            trained = [(run, one) for run, one in tested if one.agent_steps]
            result.append(Score(group, *key, tuple(trained or tested)))
    return result


def protocol_played(evaluation: Evaluation, endless: Collection[tuple[str, str]]) -> str:
    """Return the rules in words, and the limit if it matters: `full-game, sticky 0.25`.

    Evaluations stored as full-game may have been played as the run was trained, or with a limit.
    That there was none matters if the environment and the rules are `endless`: a seed of the group
    has played a game beyond the protocol's limit.
    """
    parts = [evaluation.rules_in_words()]
    if (frames := evaluation.max_frames) is None:
        parts += ["never cut"] * (_rules(evaluation) in endless)
    elif frames != _limit(evaluation):
        parts.append(f"cut after {frames:,} frames")
    return ", ".join(parts)


def _rules(evaluation: Evaluation) -> tuple[str, str]:
    """Return the environment and the rules, without the limit."""
    return evaluation.env, evaluation.rules_in_words()


def _is_endless(evaluation: Evaluation) -> bool:
    """Return whether games had no limit, and one of them went on beyond the protocol's."""
    limit = _limit(evaluation)
    beyond = (game.emulator_frames > limit for game in evaluation.episodes)
    return evaluation.max_frames is None and any(beyond)


def _limit(evaluation: Evaluation) -> int:
    """Return the limit of the evaluation's protocol, in emulator frames."""
    protocol = PROTOCOLS.get(evaluation.protocol)
    return protocol.max_frames if protocol else HALF_AN_HOUR


def human_normalised(score: Score) -> float | None:
    """Return the normalised mean full-game return: 0 random, 1 human; None for other games."""
    reference = random_and_human().get(score.env)
    return reference and reference.normalised(score.spread("full_game").mean)


def relative_improvements(
    scores_of_one: Mapping[str, float], of_other: Mapping[str, float]
) -> dict[str, float]:
    """Return percent by game, for games that both have and whose other score is not zero."""
    return {
        game: 100 * (one - of_other[game]) / abs(of_other[game])
        for game, one in scores_of_one.items()
        if of_other.get(game)
    }


def rules(found: Sequence[Score]) -> dict[Rule, list[Score]]:
    """Return the scores by their rule."""
    by_rule: dict[Rule, list[Score]] = {}
    for score in found:
        by_rule.setdefault(score.rule, []).append(score)
    return by_rule


def games_played(found: Sequence[Score]) -> str:
    """Return the number of test games of each seed in words."""
    counts = sorted({games for score in found for games in score.games})
    fewest, most = counts[0], counts[-1]
    if fewest == most:
        return f"{most:,} game{'' if most == 1 else 's'} a seed"
    return f"{fewest:,} to {most:,} games a seed"


def of_core(found: Sequence[Score], core: str) -> dict[str, Score]:
    """Return, by game, the core's first group; `found` is of one rule."""
    return {score.env: score for score in reversed(found) if score.group.core == core}


def compared(one: Score, other: Score) -> tuple[Comparison, str]:
    """Compare two scores of one game and rule; return the comparison and what is resampled.

    Resamples training seeds if both have two or more, and otherwise the test games of each seed.
    """
    sides = one, other
    if min(len(score.tested) for score in sides) > 1:
        means = (np.array(score.means(score.rule.unit.tested)) for score in sides)
        return compare(*([np.stack([m, np.ones_like(m)])] for m in means)), "training seeds"
    return compare(*map(_test_games, sides)), "test games"


def _test_games(score: Score) -> list[np.ndarray]:
    """Return [2, games] a seed: the return of each game, and the number of scores in it."""
    per_life = score.rule.unit is LIFE
    return [
        np.array([(g.episode_return, g.lives if per_life else 1) for g in one.episodes], float).T
        for one in score.evaluations
    ]


def not_counted(found: Sequence[Score], core: str) -> list[str]:
    """Return the labels of the core's groups after the first of a game; one rule."""
    first = of_core(found, core)
    ours = (score for score in found if score.group.core == core)
    return list(dict.fromkeys(s.group.settings for s in ours if s != first[s.env]))


def paper_scores(core: str, steps: int) -> dict[str, float]:
    """Return scores by game, from the paper's table at `steps` agent steps."""
    return {
        game: score.mean
        for (game, at, name), score in recurrent_fwp().items()
        if (at, name) == (steps, core)
    }


def normalised(found: Sequence[Score]) -> dict[str, dict[str, list[float]]]:
    """Return human-normalised full games by group and game, for groups of two games or more.

    Each has one value a seed; `found` is of one rule.
    """
    groups: dict[str, dict[str, list[float]]] = {}
    for score in found:
        if reference := random_and_human().get(score.env):
            runs = [reference.normalised(mean) for mean in score.means("full_game")]
            groups.setdefault(score.group.settings, {})[score.env] = runs
    return {label: games for label, games in groups.items() if len(games) > 1}


def over_games(found: Sequence[Score]) -> dict[str, dict[str, Estimate]]:
    """Return statistics of human-normalised scores by group, with 95 % intervals; of one rule."""
    return {
        label: {name: estimate(of, games, resamples=10_000) for name, of in STATISTICS.items()}
        for label, games in normalised(found).items()
    }
