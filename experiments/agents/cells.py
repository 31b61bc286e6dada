"""Runs of the command `atari` in a grid: agents, each trained and then tested."""

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from fastweights.evaluation import (
    ACTION_MODE,
    FULL_GAME,
    Evaluation,
    count_ended,
    games_of,
    own_tests,
)
from fastweights.evaluation.reports import LoggedRun, column_numbers, cpu_minutes, open_run
from fastweights.experiments.grid import Run, as_flags
from fastweights.host import command_argv
from fastweights.records import current_options, read_meta
from fastweights.training import (
    RunOptions,
    changed_flags,
    check_options,
    module_arguments,
    preset,
)

_LAST = ("savedir", "xpid")


@dataclass(frozen=True)
class AgentRun(Run):
    """An agent's training, followed by test games if its options request them.

    Raises:
        ValueError: invalid options; one line.
    """

    options: RunOptions
    preset: str = "paper"  # the command's preset, which the options modify

    def __post_init__(self) -> None:
        check_options(self.options)

    @property
    def trained(self) -> bool:
        if not self.begun:
            return False
        meta = read_meta(self.path)
        length = current_options(meta).get("total_steps", 0)
        return bool(meta.get("successful")) and length >= self.options.learner.total_steps

    @property
    def finished(self) -> bool:
        return self.trained and bool(not self._is_tested or self._test_games())

    def start(self) -> list[str]:
        options = self.options
        usual = preset(self.preset, options.core, options.env).to_dict()
        usual["env"] = preset(self.preset, options.core).env
        own = options.to_dict()
        given = {name: own[name] for name in own if name == "seed" or own[name] != usual[name]}
        given.pop("num_threads", None)
        given |= {name: given.pop(name) for name in _LAST if name in given}
        core = ["--preset", self.preset, "--core", options.core]
        return [*command_argv("atari"), "--num-threads", "1", *core, *as_flags(given)]

    def go_on(self) -> list[str]:
        if not self.trained:  # it may have been killed before its first checkpoint
            return [*self.start(), "--auto-resume"]
        plan = asdict(games_of(self.options))
        named = ("episodes", "repeats", "protocol", "max_frames")
        games = {name: plan[name] for name in named if plan[name] is not None}
        words = as_flags(games | {"action_mode": ACTION_MODE})
        evaluate = [*command_argv("evaluate"), str(self.path), "--num-threads", "1"]
        return [*evaluate, *words, *module_arguments(self.options)]

    def differences(self, stored: dict[str, Any]) -> list[str]:
        return changed_flags(RunOptions.from_dict(stored), self.options, shorter=False)

    def result(self) -> dict[str, Any]:
        """Return the measurements in training and test games, and the run's origin."""
        meta = read_meta(self.path)
        tested = _tested(self._test_games()[-1]) if self._is_tested else {}
        trained = {"training": _trained(open_run(self.path))}
        provenance = {name: meta.get(name) for name in ("git", "versions", "machine")}
        options = current_options(meta) | {"savedir": "runs"}
        return tested | trained | {"options": options} | provenance

    @property
    def _is_tested(self) -> bool:
        return self.options.evaluate_episodes > 0

    def _test_games(self) -> list[Evaluation]:
        """Return the run's own test games after training, the newest last."""
        end = self.options.learner.total_steps
        played = own_tests(self.path, self.options, warn=lambda line: None).values()
        return [one for one in played if one.agent_steps >= end]


def _tested(evaluation: Evaluation) -> dict[str, Any]:
    returns = [round(episode.episode_return, 3) for episode in evaluation.episodes]
    return {"agent_steps": evaluation.agent_steps, "returns": returns}


def _trained(run: LoggedRun) -> dict[str, Any]:
    """Return figures from the log's last row; None without a finished game or CPU times."""
    minutes, recent = float(cpu_minutes(run)[-1]), float(column_numbers(run, FULL_GAME.recent)[-1])
    return {
        "agent_steps": run.agent_steps,
        "games": count_ended(run.logs, FULL_GAME),
        "recent_full_game_return": recent if isfinite(recent) else None,
        "cpu_seconds": round(60 * minutes, 1) if isfinite(minutes) else None,
    }
