"""Test games for all commands: played in parallel if they fit, with progress, stored in files."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

from fastweights.agents import Network
from fastweights.envs import HALF_AN_HOUR, Environments
from fastweights.evaluation.evaluation_file import Evaluation, PlayedGame, write_overview
from fastweights.evaluation.games import Played, check_actions, play_games, score_modulus
from fastweights.evaluation.player import ActionMode
from fastweights.evaluation.rules import longest_test, rules_for_testing
from fastweights.host import COUNT, NOT_NEGATIVE, ProgressDisplay, check_ranges, code_revision
from fastweights.training import TEST_SEEDS, Rules, RunOptions, make_environments, trained_rules

_MOST_AT_ONCE = 256  # environments in parallel
_LONG = HALF_AN_HOUR // 4  # agent steps in half an hour of Atari

Report = Callable[[int, int], None]  # finished games, agent steps of the longest game


@dataclass(frozen=True, kw_only=True)
class GamePlan:
    """The test games of an agent. Equal plans give an agent equal games."""

    episodes: int = 30
    """Number of full games per repeat."""
    repeats: int = 5
    """Number of repeats; the reported spread is the spread of their means."""
    num_envs: int = 0
    """Number of parallel games; affects the speed but not the games. 0: all, at most 256."""
    protocol: str = "full-game"
    """Rules: full-game, published (scores are lives), machado, noop30, or trained (as in
    training)."""
    max_frames: int | None = None
    """Maximum length of a game in emulator frames (agent steps without an emulator); 0: no limit.
    Default: 108000 (half an hour), or the training limit with --protocol trained."""
    env_options: tuple[str, ...] = ()
    """Environment options that override those of training, such as corridor=20 (TMaze) or
    sticky=0.25 (Atari)."""
    seed: int = TEST_SEEDS.start
    """Seed of the first game; game i, counted across all repeats, uses seed + i."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per CPU core."""

    @property
    def games(self) -> int:
        """The number of games in all repeats."""
        return self.episodes * self.repeats


def check_plan(plan: GamePlan) -> None:
    """Raise a one-line `ValueError` for an invalid value."""
    check_ranges(plan, COUNT, "episodes", "repeats")
    check_ranges(plan, NOT_NEGATIVE, "num_envs", "max_frames")
    most = 2**31  # seeds, one for each game
    if plan.games > most:
        raise ValueError(
            f"--episodes {plan.episodes} x --repeats {plan.repeats} is more than {most:,} games"
        )
    if not 0 <= plan.seed <= most - plan.games:
        raise ValueError(f"--seed must lie in [0, {most - plan.games}], not {plan.seed}")


def check_plays(network: Network, trained: RunOptions, plan: GamePlan) -> None:
    """Raise a one-line `ValueError` if the network cannot play the games of `plan`."""
    environments = environments_of_plan(trained, plan, 1, plan.seed)
    check_actions(network, environments)
    environments.close()


def play(
    network: Network,
    trained: RunOptions,
    step: int,
    plan: GamePlan,
    action_mode: ActionMode,
    *,
    device: torch.device | str = "cpu",
    report: Report = lambda finished, longest: None,
) -> Evaluation:
    """Play the games of `plan` with a network trained with `trained` for `step` agent steps.

    `report` is called after every step; an exception that it raises ends the games. Call
    `check_plays` first to find out whether the games can be played.

    Raises:
        ValueError: an invalid value in `plan`, or an invalid action mode; one line.
    """
    check_plan(plan)
    at_once = min(plan.num_envs or _MOST_AT_ONCE, plan.games)
    limit = longest_test(trained, plan.protocol, plan.max_frames)
    is_atari = trained_rules(trained).resolved(trained.env) is not None  # ale-py cuts these off
    played: list[Played] = []
    for first in range(0, plan.games, at_once):
        number, seed = min(at_once, plan.games - first), plan.seed + first
        environments = environments_of_plan(trained, plan, number, seed)
        with closing(environments), _evaluating(network):
            played += play_games(
                network,
                environments,
                action_mode=action_mode,
                seed=seed,
                device=device,
                score_modulus=score_modulus(trained.env),
                max_steps=None if is_atari else limit,
                progress=lambda finished, longest, before=first: report(before + finished, longest),
            )
    return _evaluation(environments, trained, step, plan, action_mode, played)


@contextmanager
def _evaluating(network: Network) -> Iterator[None]:
    """Put the network into evaluation mode (no dropout); restore each module's mode afterwards."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def rules_of_plan(trained: RunOptions, plan: GamePlan) -> Rules:
    """Return the rules of the plan's games for an agent trained with `trained`."""
    return rules_for_testing(trained, plan.protocol, plan.max_frames, plan.env_options)


def environments_of_plan(
    trained: RunOptions, plan: GamePlan, num_envs: int, seed: int, render: bool = False
) -> Environments:
    """Return `num_envs` environments for `plan` and an agent trained with `trained`."""
    rules = rules_of_plan(trained, plan)
    return make_environments(
        trained, num_envs, seed, rules=rules, render=render, num_threads=plan.num_threads
    )


def keep(evaluation: Evaluation, run: Path, trained: RunOptions, **about: object) -> Path:
    """Store an evaluation in `run`, a run folder or its equivalent; return the JSON's path.

    `about`: the agent's origin, where it differs from this process.
    """
    path = run / "evaluations" / evaluation.file_name()
    evaluation.save(
        path,
        run=run.resolve().name,
        options=trained.to_dict(),
        **{"git": code_revision(), "evaluation_git": code_revision()} | about,
    )
    write_overview(run)
    return path


@contextmanager
def progress_bar(
    games: int,
    what: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    limit: int | None = None,
    option: str = "--max-frames",
) -> Iterator[Report]:
    """Show the number of finished games, and an estimate of the time left, on stderr.

    The estimate uses the mean pace since the start: many games run in parallel, so it may take a
    long time until the first game ends.

    Args:
        games: number of games.
        what: what the bar counts, in words.
        stream: stream to write to; None for stderr.
        clock: clock in seconds.
        limit: frames after which games are cut off; None for never.
        option: the command's option for `limit`, for a note about long games.
    """
    said = False

    def report(finished: int, longest: int) -> None:
        nonlocal said
        display.update(finished, {"longest_game": longest})
        if longest == _LONG + 1 and not said:
            said = True
            cut = f"it will be cut off after {limit:,} frames ({option})" if limit else None
            how = cut or f"to limit its length, use {option}"
            display.say(f"note: a game has passed {_LONG:,} agent steps; {how}")

    showing = ProgressDisplay(
        games, stream=stream or sys.stderr, clock=clock, unit="games", window=math.inf
    )
    with showing as display:
        display.say(f"{what}: {games:,} games")
        yield report


def _changes(trained: RunOptions, rules: Rules) -> dict[str, Any]:
    """Return the options that differ from those in training."""
    known = trained.environment_options()
    return {
        name: value
        for name, value in rules.options.items()
        if name not in known or known[name] != value
    }


def _evaluation(
    environments: Environments,
    trained: RunOptions,
    step: int,
    plan: GamePlan,
    action_mode: ActionMode,
    played: list[Played],
) -> Evaluation:
    rules = rules_of_plan(trained, plan).complete(trained.env)
    resolved = rules.resolved(trained.env)
    cap = longest_test(trained, plan.protocol, plan.max_frames)
    frames = environments.frames_per_step
    return Evaluation(
        env=environments.name,
        protocol=rules.protocol,
        rules=rules.options,
        changed_options={} if resolved else _changes(trained, rules),
        score=resolved.score if resolved else "game",
        max_frames=cap,
        action_mode=action_mode,
        seed=plan.seed,
        repeats=plan.repeats,
        agent_steps=step,
        core=trained.core,
        score_modulus=score_modulus(trained.env),
        episodes=tuple(
            PlayedGame(
                repeat=number // plan.episodes,
                episode=number % plan.episodes,
                seed=plan.seed + number,
                episode_return=game.episode_return,
                life_returns=game.life_returns,
                life_wraps=life_wraps,
                lives=len(game.life_returns),
                agent_steps=game.agent_steps,
                emulator_frames=game.emulator_frames,
                cut=cap is not None and game.agent_steps * frames >= cap,
            )
            for number, (game, life_wraps) in enumerate(played)
        ),
    )
