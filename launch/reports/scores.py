"""Test scores of groups of seeds, what the paper has beside them, and how far two cores are apart.

The relative improvement of a over b is 100 (a - b) / |b| percent, as in the bar charts of Irie et
al. 2021, Figures 1-12.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, pstdev
from typing import NamedTuple

from envs.protocols import HALF_AN_HOUR, PROTOCOLS
from launch.evaluation import THE_AGENTS_OWN
from launch.evaluation_file import Evaluation
from launch.published_scores import PublishedScore, random_and_human, recurrent_fwp
from launch.reports.runs import Group, Run
from launch.score_statistics import STATISTICS, Estimate, estimate
from launch.score_summary import Spread, spread

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


def core_scores(
    found: Sequence[Score], core: str, protocol: str, action_mode: str
) -> dict[str, list[float]]:
    """By game, one a seed, of the core's first group there."""
    kind = (core, protocol, action_mode)
    matching = [s for s in found if (s.group.core, s.protocol, s.action_mode) == kind]
    return {score.env: score.means("score") for score in reversed(matching)}


def not_counted(found: Sequence[Score], core: str) -> list[str]:
    """The labels of the groups of `core` that are not the first of some game and protocol."""
    ours = [score for score in found if score.group.core == core]
    first = {(s.env, s.protocol, s.action_mode): s.group.label for s in reversed(ours)}
    behind = (s for s in ours if s.group.label != first[s.env, s.protocol, s.action_mode])
    return list(dict.fromkeys(score.group.label for score in behind))


def paper_scores(core: str, steps: int) -> dict[str, float]:
    """By game, from the paper's table at `steps` agent steps."""
    return {
        game: score.mean
        for (game, at, name), score in recurrent_fwp().items()
        if (at, name) == (steps, core)
    }


def normalised(found: Sequence[Score]) -> dict[str, dict[str, list[float]]]:
    """Human-normalised full games by kind of score and game, one a seed, of two games or more."""
    kinds: dict[str, dict[str, list[float]]] = {}
    for score in found:
        if reference := random_and_human().get(score.env):
            runs = [reference.normalised(mean) for mean in score.means("full_game")]
            kinds.setdefault(score.kind, {})[score.env] = runs
    return {kind: games for kind, games in kinds.items() if len(games) > 1}


def over_games(found: Sequence[Score]) -> dict[str, dict[str, Estimate]]:
    """Statistics of human-normalised scores by kind of score, with 95 % intervals."""
    return {
        kind: {name: estimate(of, games, resamples=10_000) for name, of in STATISTICS.items()}
        for kind, games in normalised(found).items()
    }
