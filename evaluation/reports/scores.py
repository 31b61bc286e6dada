"""Test scores of groups of seeds, what the paper has beside them, and how far two cores are apart.

The relative improvement of a over b is 100 (a - b) / |b| percent, as in the bar charts of Irie et
al. 2021, Figures 1-12.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np

from fastweights.envs.protocols import HALF_AN_HOUR, PROTOCOLS
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.games import THE_AGENTS_OWN
from fastweights.evaluation.published_scores import PublishedScore, random_and_human, recurrent_fwp
from fastweights.evaluation.reports.runs import Group, Run
from fastweights.evaluation.score_summary import Spread, spread
from fastweights.evaluation.statistics import STATISTICS, Comparison, Estimate, compare, estimate

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
    """How test games were played and what a score is; only scores of one rule are comparable."""

    protocol: str  # as `protocol_played` names it
    action_mode: str
    unit: str  # full_game or life, whichever the protocol counts

    def __str__(self) -> str:
        name, comma, changes = self.protocol.partition(", ")
        protocol = f"{name} protocol" + (f" ({changes})" if comma else "")
        unit = "a life" if self.unit == "life" else "a full game"
        return f"returns of {unit}, {self.action_mode} actions, {protocol}"


class Score(NamedTuple):
    """The newest evaluations of a group's seeds under one protocol and action mode."""

    group: Group
    env: str
    protocol: str  # as `protocol_played` names it
    action_mode: str
    tested: tuple[tuple[Run, Evaluation], ...]  # one a seed

    @property
    def evaluations(self) -> list[Evaluation]:
        """One a seed."""
        return [evaluation for _, evaluation in self.tested]

    @property
    def kind(self) -> str:
        """What tells the scores of one game apart."""
        return f"{self.group.label}, {self.protocol}, {self.action_mode}"

    @property
    def rule(self) -> Rule:
        unit = "life" if self.evaluations[0].score == "life" else "full_game"
        return Rule(self.protocol, self.action_mode, unit)

    @property
    def games(self) -> list[int]:
        """Test games of each seed."""
        return [len(evaluation.episodes) for evaluation in self.evaluations]

    @property
    def agent_steps(self) -> str:
        """That the agents had been trained for."""
        steps = sorted(one.agent_steps for one in self.evaluations)
        return f"{steps[0]:,}" if steps[0] == steps[-1] else f"{steps[0]:,} to {steps[-1]:,}"

    def spread(self, what: str) -> Spread:
        """`what`: full_game, life or score (whichever of the two the protocol counts)."""
        means = self.means(what)
        if len(means) > 1:
            return Spread(fmean(means), pstdev(means), f"{len(means)} seeds")
        return spread(self.evaluations[0], what)

    def means(self, what: str) -> list[float]:
        """One a seed."""
        return [one.summary()[f"{what}_mean"] for one in self.evaluations]


def scores(groups: Sequence[Group]) -> list[Score]:
    """Every group's newest test scores, of them those of most games, by protocol and mode."""
    result = []
    for group in groups:
        newest: dict[tuple[str, str, str], list[tuple[Run, Evaluation]]] = {}
        for run in group.runs:
            order = sorted(run.evaluations.values(), key=lambda e: (e.agent_steps, len(e.episodes)))
            for key, one in {(e.env, protocol_played(e), e.action_mode): e for e in order}.items():
                newest.setdefault(key, []).append((run, one))
        result += [Score(group, *key, tuple(tested)) for key, tested in newest.items()]
    return result


def protocol_played(evaluation: Evaluation) -> str:
    """The protocol's name and what was not as it says: `full-game, sticky 0.25`.

    What is stored as full-game may have been played as a run was trained, or with a cap.
    """
    protocol, rules = PROTOCOLS.get(evaluation.protocol), evaluation.rules
    usual = asdict(protocol) if protocol else {}
    cap = usual.pop("max_frames", HALF_AN_HOUR)
    changed = [
        f"{name} {rules[name]}"
        for name, value in usual.items()
        if name not in THE_AGENTS_OWN and rules.get(name, value) != value
    ]
    if (frames := evaluation.max_frames) is None:  # which matters where a game was so long
        changed += ["never cut"] * any(one.emulator_frames > cap for one in evaluation.episodes)
    elif frames != cap:
        changed.append(f"cut after {frames:,} frames")
    return ", ".join([evaluation.protocol, *changed])


def paper_score(env: str, core: str, steps: int) -> PublishedScore | None:
    """The paper's, per life, or None where it has none."""
    return recurrent_fwp().get((env, steps, core))


def human_normalised(score: Score) -> float | None:
    """Of the mean full-game return: 0 is random play, 1 the human; None for other games."""
    reference = random_and_human().get(score.env)
    return reference and reference.normalised(score.spread("full_game").mean)


def relative_improvements(
    scores_of_one: Mapping[str, float], of_other: Mapping[str, float]
) -> dict[str, float]:
    """Percent by game, for the games that both have and whose other score is not zero."""
    return {
        game: 100 * (one - of_other[game]) / abs(of_other[game])
        for game, one in scores_of_one.items()
        if of_other.get(game)
    }


def rules(found: Sequence[Score]) -> dict[Rule, list[Score]]:
    """The scores by how they came about."""
    by_rule: dict[Rule, list[Score]] = {}
    for score in found:
        by_rule.setdefault(score.rule, []).append(score)
    return by_rule


def games_played(found: Sequence[Score]) -> str:
    """In words: test games of each seed."""
    counts = sorted({games for score in found for games in score.games})
    fewest, most = counts[0], counts[-1]
    if fewest == most:
        return f"{most:,} game{'' if most == 1 else 's'} a seed"
    return f"{fewest:,} to {most:,} games a seed"


def of_core(found: Sequence[Score], core: str) -> dict[str, Score]:
    """By game, the core's first group there; `found` is of one rule."""
    return {score.env: score for score in reversed(found) if score.group.core == core}


def compared(one: Score, other: Score) -> tuple[Comparison, str]:
    """Two scores of one game and rule; what their intervals are drawn over.

    Over training seeds where both have two or more; otherwise over the test games of each seed.
    """
    sides = one, other
    if min(len(score.tested) for score in sides) > 1:
        means = (np.array(score.means(score.rule.unit)) for score in sides)
        return compare(*([np.stack([m, np.ones_like(m)])] for m in means)), "training seeds"
    return compare(*map(_test_games, sides)), "test games"


def _test_games(score: Score) -> list[np.ndarray]:
    """[2, games] a seed: the return of each game, and how many scores it is the sum of."""
    per_life = score.rule.unit == "life"
    return [
        np.array([(g.episode_return, g.lives if per_life else 1) for g in one.episodes], float).T
        for one in score.evaluations
    ]


def not_counted(found: Sequence[Score], core: str) -> list[str]:
    """The labels of the groups of `core` behind the first of a game; `found` is of one rule."""
    first = of_core(found, core)
    ours = (score for score in found if score.group.core == core)
    return list(dict.fromkeys(s.group.settings for s in ours if s != first[s.env]))


def paper_scores(core: str, steps: int) -> dict[str, float]:
    """By game, from the paper's table at `steps` agent steps."""
    return {
        game: score.mean
        for (game, at, name), score in recurrent_fwp().items()
        if (at, name) == (steps, core)
    }


def normalised(found: Sequence[Score]) -> dict[str, dict[str, list[float]]]:
    """Human-normalised full games by group and game, one a seed, of two games or more.

    `found` is of one rule.
    """
    groups: dict[str, dict[str, list[float]]] = {}
    for score in found:
        if reference := random_and_human().get(score.env):
            runs = [reference.normalised(mean) for mean in score.means("full_game")]
            groups.setdefault(score.group.settings, {})[score.env] = runs
    return {label: games for label, games in groups.items() if len(games) > 1}


def over_games(found: Sequence[Score]) -> dict[str, dict[str, Estimate]]:
    """Statistics of human-normalised scores by group, with 95 % intervals; of one rule."""
    return {
        label: {name: estimate(of, games, resamples=10_000) for name, of in STATISTICS.items()}
        for label, games in normalised(found).items()
    }
