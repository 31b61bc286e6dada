"""Test games of an agent in training: before, at intervals, and after.

The games are those of `evaluate.py --protocol trained --action-mode sampled`, with seeds that no
training environment uses. They are played between two updates with the current weights, in separate
environments and with separate random numbers. Training is bit-identical with and without them; only
its duration increases.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from fastweights.agents import Network
from fastweights.evaluation.evaluation_file import Evaluation, evaluations_in, print_warning
from fastweights.evaluation.player import ActionMode
from fastweights.evaluation.playing import (
    GamePlan,
    Report,
    keep,
    play,
    progress_bar,
    rules_of_plan,
)
from fastweights.evaluation.rules import changed_rules, longest_test
from fastweights.evaluation.score_summary import cut_games
from fastweights.host import UserError
from fastweights.training import RunOptions

# Sampled actions: with argmax, an agent trained for minutes may repeat one action and get stuck.
ACTION_MODE: ActionMode = "sampled"


def games_of(options: RunOptions) -> GamePlan:
    """Return the test games of a run."""
    return GamePlan(
        episodes=options.evaluate_episodes,
        repeats=1,
        protocol="trained",
        max_frames=options.evaluate_max_frames,
        num_threads=options.num_threads,
    )


def own_tests(
    run: Path, options: RunOptions, warn: Callable[[str], None] = print_warning
) -> dict[Path, Evaluation]:
    """Return the test games that belong to a run's training, by file, fewest agent steps first.

    Other games, such as those under other rules, are left out. `warn` is called with a line about
    each file that cannot be read.
    """
    plan = games_of(options)
    rules = rules_of_plan(options, plan).complete(options.env)
    limit = longest_test(options, plan.protocol, plan.max_frames)
    changes = changed_rules(rules.protocol, rules.options)
    own = rules.protocol, changes, limit, ACTION_MODE, plan.seed, plan.repeats, plan.games

    def is_own(one: Evaluation) -> bool:
        played = one.protocol, one.changed_rules(), one.max_frames, one.action_mode
        return own == (*played, one.seed, one.repeats, len(one.episodes))

    return {path: one for path, one in evaluations_in(run, warn).items() if is_own(one)}


def shown(options: RunOptions, what: str) -> AbstractContextManager[Report]:
    """Show the progress of a run's test games."""
    plan = games_of(options)
    limit = longest_test(options, plan.protocol, plan.max_frames)
    return progress_bar(plan.games, what, limit=limit, option="--evaluate-max-frames")


def play_games_of(
    network: Network, options: RunOptions, step: int, device: torch.device, report: Report
) -> Evaluation:
    """Play a run's test games with `network` after `step` agent steps."""
    plan = games_of(options)
    return play(network, options, step, plan, ACTION_MODE, device=device, report=report)


class PeriodicTest:
    """Plays test games each time training has passed another `evaluate_every` steps.

    `step`: agent steps already trained for. If the run was stopped during the games due at that
    point, they are played first. `say` is called with a line about each result.
    """

    def __init__(
        self,
        network: Network,
        options: RunOptions,
        step: int,
        run: Path,
        device: torch.device,
        say: Callable[[str], None],
    ):
        self._network, self._options, self._run = network, options, run
        self._device, self._say = device, say
        tested = own_tests(run, options).values() if step and options.evaluate_every else ()
        steps = [one.agent_steps for one in tested if one.agent_steps <= step]
        self._periods = self._passed(max(steps, default=step))

    def __call__(self, step: int, check: Callable[[], None]) -> None:
        """Play the games if they are due; if `check` raises, the games leave no trace."""
        if self._passed(step) == self._periods:
            return
        evaluation = play_games_of(
            self._network, self._options, step, self._device, lambda finished, longest: check()
        )
        self._periods = self._passed(step)
        try:
            keep(evaluation, self._run, self._options)
        except (OSError, UserError) as error:  # training continues, as after a failed checkpoint
            self._say(f"warning: the test games at {step:,} agent steps were not saved: {error}")
        summary = evaluation.summary()
        self._say(
            f"test at {step:,} agent steps: {summary['full_game_mean']:,.1f} ± "
            f"{summary['full_game_std']:,.1f} over {summary['episodes']} full games"
            f"{f' ({cut})' if (cut := cut_games(evaluation)) else ''}"
        )

    def _passed(self, step: int) -> int:
        every = self._options.evaluate_every
        return step // every if every else 0
