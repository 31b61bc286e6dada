"""Test scores of groups of seeds, next to the paper's scores, and differences between cores.

The relative improvement of a over b is 100 (a - b) / |b| percent, as in the bar charts of Irie et
al. 2021, Figures 1-12.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from statistics import fmean, pstdev
from typing import NamedTuple, TypeAlias

import numpy as np

from fastweights.envs import HALF_AN_HOUR, PROTOCOLS
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.published_scores import random_and_human, recurrent_fwp
from fastweights.evaluation.reports.runs import Group, LoggedRun, differing
from fastweights.evaluation.score_summary import Spread, spread
from fastweights.evaluation.statistics import STATISTICS, Comparison, Estimate, compare, estimate
from fastweights.evaluation.training_returns import LIFE, Unit

_MOST_NAMED = 10  # games in a caption

# Human-normalised scores by group and game, one value per seed. All groups have the same games.
Normalised: TypeAlias = dict[str, dict[str, list[float]]]

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
    """The conditions of test games and scores; only scores under the same rule are comparable."""

    protocol: str  # as `protocol_played` names it
    action_mode: str
    unit: Unit  # set by the protocol

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
    tested: tuple[tuple[LoggedRun, Evaluation], ...]  # one per seed

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations, one per seed."""
        return [evaluation for _, evaluation in self.tested]

    @property
    def kind(self) -> str:
        """The name that distinguishes scores on the same game."""
        return f"{self.group.label}, {self.protocol}, {self.action_mode}"

    @property
    def rule(self) -> Rule:
        """The rule that the score was obtained under."""
        return Rule(self.protocol, self.action_mode, self.evaluations[0].unit)

    @property
    def games(self) -> list[int]:
        """The number of test games per seed."""
        return [len(evaluation.episodes) for evaluation in self.evaluations]

    @property
    def agent_steps(self) -> str:
        """The agent steps of the agents' training."""
        steps = sorted(one.agent_steps for one in self.evaluations)
        return f"{steps[0]:,}" if steps[0] == steps[-1] else f"{steps[0]:,} to {steps[-1]:,}"

    def spread(self, what: str) -> Spread:
        """Return mean and standard deviation of `what`: full_game, life or score."""
        means = self.means(what)
        if len(means) > 1:
            return Spread(fmean(means), pstdev(means), f"{len(means)} seeds")
        return spread(self.evaluations[0], what)

    def means(self, what: str) -> list[float]:
        """Return the mean for each seed."""
        return [one.summary()[f"{what}_mean"] for one in self.evaluations]


def scores(groups: Sequence[Group]) -> list[Score]:
    """Return every group's newest scores over the most games, by protocol and mode.

    Seeds tested only before training are left out if others were tested after training.
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

    Evaluations stored as full-game may have been played under the training rules, or with a limit.
    A missing limit matters if the environment and the rules are `endless`: a seed of the group has
    played a game beyond the protocol's limit.
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
    """Return whether games had no limit and some game exceeded the protocol's limit."""
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
    """Return percentages by game, for games with scores of both, the other's not zero."""
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
    """Return the number of test games per seed in words."""
    counts = sorted({games for score in found for games in score.games})
    fewest, most = counts[0], counts[-1]
    if fewest == most:
        return f"{most:,} game{'' if most == 1 else 's'} per seed"
    return f"{fewest:,} to {most:,} games per seed"


def unequal_steps(found: Sequence[Score]) -> str:
    """Return which agents of a game were trained for different numbers of agent steps.

    Nothing is said about games whose agents have equal numbers; empty if all have.
    """
    games: dict[str, list[Score]] = {}
    for score in found:
        games.setdefault(score.env, []).append(score)
    said = [
        f"{env}: {', '.join(f'{s.group.settings} after {s.agent_steps}' for s in same)} agent steps"
        for env, same in games.items()
        if len({one.agent_steps for score in same for one in score.evaluations}) > 1
    ]
    if not said:
        return ""
    return f"Training lengths differ: {'; '.join(said)}. That may explain a difference in scores."


def matched(found: Sequence[Score], one: str, other: str) -> dict[str, tuple[Score, Score]]:
    """Return one score of each core by game, for games with scores of both; `found`: one rule.

    Of several groups of a core, the two whose options differ least are chosen, because a comparison
    of cores should differ in nothing else. Of equal pairs, the first is chosen.
    """
    pairs: dict[str, list[tuple[Score, Score]]] = {}
    for ours, theirs in product(found, found):
        if (ours.group.core, theirs.group.core, ours.env) == (one, other, theirs.env):
            pairs.setdefault(ours.env, []).append((ours, theirs))
    return {
        env: min(both, key=lambda pair: len(other_options(*pair))) for env, both in pairs.items()
    }


def other_options(one: Score, other: Score) -> list[str]:
    """Return the options, apart from the core's, that differ between two scores' groups."""
    names = differing([score.group.runs[0] for score in (one, other)])
    return [name for name in names if name != "core" and not name.startswith("core_")]


def compared(one: Score, other: Score) -> tuple[Comparison, str]:
    """Compare two scores on one game and rule; return the comparison and what was resampled.

    Training seeds are resampled if both scores have two or more, otherwise each seed's test games.
    """
    sides = one, other
    if min(len(score.tested) for score in sides) > 1:
        means = (np.array(score.means(score.rule.unit.tested)) for score in sides)
        return compare(*([np.stack([m, np.ones_like(m)])] for m in means)), "training seeds"
    return compare(*map(_test_games, sides)), "test games"


def _test_games(score: Score) -> list[np.ndarray]:
    """Return [2, games] per seed: the return of each game, and the number of scores in it."""
    per_life = score.rule.unit is LIFE
    return [
        np.array([(g.episode_return, g.lives if per_life else 1) for g in one.episodes], float).T
        for one in score.evaluations
    ]


def not_compared(
    found: Sequence[Score], pairs: Mapping[str, tuple[Score, Score]], one: str, other: str
) -> list[str]:
    """Return the labels of the two cores' groups that `pairs` leaves out, under one rule."""
    cores = (one, other)
    ours = (score for score in found if score.group.core in cores and score.env in pairs)
    return list(dict.fromkeys(s.group.settings for s in ours if s not in pairs[s.env]))


def paper_scores(core: str, steps: int) -> dict[str, float]:
    """Return scores by game, from the paper's table at `steps` agent steps."""
    return {
        game: score.mean
        for (game, at, name), score in recurrent_fwp().items()
        if (at, name) == (steps, core)
    }


def normalised(found: Sequence[Score]) -> list[Normalised]:
    """Return human-normalised full-game scores for every group's set of two or more games.

    A set includes all groups with scores on its games, so that only scores over the same games are
    compared. The games that all groups share are a set, too. `found` is under one rule.
    """
    groups: Normalised = {}
    for score in found:
        if reference := random_and_human().get(score.env):
            runs = [reference.normalised(mean) for mean in score.means("full_game")]
            groups.setdefault(score.group.settings, {})[score.env] = runs
    of_groups = [frozenset(games) for games in groups.values()]
    sets = dict.fromkeys([*of_groups, *([frozenset.intersection(*of_groups)] if groups else [])])
    return [
        {
            label: {game: runs for game, runs in games.items() if game in among}
            for label, games in groups.items()
            if among <= games.keys()
        }
        for among in sorted(sets, key=len, reverse=True)
        if len(among) > 1
    ]


def scores_in(groups: Normalised, found: Sequence[Score]) -> list[Score]:
    """Return the scores of `found` that are in `groups`; of one rule."""
    return [score for score in found if score.env in groups.get(score.group.settings, ())]


def statistics_of(groups: Normalised) -> dict[str, dict[str, Estimate]]:
    """Return statistics over the games by group, with 95 % intervals."""
    return {
        label: {name: estimate(of, games, resamples=10_000) for name, of in STATISTICS.items()}
        for label, games in groups.items()
    }


def games_of(groups: Normalised) -> str:
    """Return the groups' games in words: `2 games (Pong, Qbert)`; names only if there are few."""
    games = sorted(next(iter(groups.values())))
    return f"{len(games)} games" + (f" ({', '.join(games)})" if len(games) <= _MOST_NAMED else "")
