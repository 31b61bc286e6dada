"""The content of a run folder for a report, and the grouping of runs by seed."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from fastweights.cores import CORES
from fastweights.envs import Name, resolve, shows_last_action
from fastweights.evaluation.evaluation_file import Evaluation, evaluations_in
from fastweights.host import UserError, expanded, one_line, typed_command, typed_values
from fastweights.records import current_options, read_logs, read_meta
from fastweights.training import CHANGEABLE_ON_RESUME, RunOptions, trained_rules

_IDENTIFY = ("env", "protocol", "core", "seed")
_NOT_COMPUTED = ("seed", *(name for name in CHANGEABLE_ON_RESUME if name != "precision"))
_CLIPS = (".mp4", ".gif")
_MOST_CHANGES = 3  # in a label; if more options differ, the run's name is used


@dataclass(frozen=True)
class LoggedRun:
    """One run folder in its current state; it may still be training."""

    name: str  # the folder's name, with as many parents as make it unique in the report
    path: Path
    meta: dict[str, Any]
    logs: dict[str, list[Any]]  # columns of equal length, at least one row
    evaluations: dict[Path, Evaluation]
    clips: tuple[Path, ...]
    frames_per_step: int  # emulator frames per agent step
    warnings: tuple[str, ...] = ()  # one line per evaluation that could not be read

    @property
    def options(self) -> dict[str, Any]:
        """The run's options, as it was last resumed."""
        return current_options(self.meta)

    @property
    def core(self) -> str:
        """The core's name."""
        return self.options["core"]

    @property
    def game(self) -> str:
        """Game and, unless it is the default, protocol."""
        protocol = self.options["protocol"]
        return self.env if protocol == "full-game" else f"{self.env} ({protocol})"

    @property
    def env(self) -> str:
        """The game, in its usual spelling."""
        known = _known(self.options["env"])
        return known.display if known else self.options["env"]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.options["seed"]

    @property
    def num_envs(self) -> int:
        """The number of training environments."""
        return (RunOptions().to_dict() | self.options)["num_envs"]

    @property
    def agent_steps(self) -> int:
        """The agent steps in the last row of the logs."""
        return self.logs["step"][-1]

    def computed(self) -> dict[str, Any]:
        """Return the options that determine the result of a seed."""
        # Older runs lack newer options, whose defaults describe what these runs did.
        options = RunOptions().to_dict() | self.options | {"env": self.env}
        if options["feed_last_action"] == "auto":  # this run is older than the option
            options["feed_last_action"] = shows_last_action(self.options["env"])
        return {name: v for name, v in options.items() if name not in _NOT_COMPUTED}


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed.

    `label` distinguishes them from the other groups of their environment. `settings` distinguishes
    them from groups with other options in all environments, and is equal for equal options.
    """

    label: str
    settings: str
    runs: tuple[LoggedRun, ...]

    @property
    def game(self) -> str:
        """The runs' game."""
        return self.runs[0].game

    @property
    def core(self) -> str:
        """The runs' core."""
        return self.runs[0].core


def open_run(path: Path) -> LoggedRun:
    """Read a run folder; ignore a half-written last row of its logs.

    Raises:
        UserError: no run, another program's run, or an empty run; one line.
    """
    path = expanded(path).resolve()
    meta = read_meta(path)
    try:
        options = typed_values(RunOptions, current_options(meta))
        missing = [name for name in _IDENTIFY if name not in options]
        frames_per_step = 1 if missing else _frames_per_step(options)
    except ValueError as error:
        raise UserError(f"{path / 'meta.json'} is damaged: {error}") from error
    if missing and (task := (meta.get("args") or {}).get("task_name")):
        raise UserError(
            f"{path} is a run of {task}, a sequence task: its results are in result.json, and the "
            "option --table of its command shows them next to the paper's"
        )
    if missing:
        raise UserError(
            f"{path} is a run of another program (no {missing[0]!r} among its options): "
            f"give run folders of {typed_command('atari')}"
        )
    logs = _with_steps(read_logs(path))
    if not logs.get("step"):
        raise UserError(f"{path} has no log rows yet: wait for its first update")
    clips = (clip for clip in sorted((path / "clips").glob("*")) if clip.suffix in _CLIPS)
    warnings: list[str] = []
    evaluations = evaluations_in(path, warnings.append)
    return LoggedRun(
        path.name, path, meta, logs, evaluations, tuple(clips), frames_per_step, tuple(warnings)
    )


def _with_steps(logs: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the rows that have a step."""
    there = [type(step) is int for step in logs.get("step", ())]
    return {name: list(compress(column, there)) for name, column in logs.items()}


def open_runs(paths: Sequence[Path]) -> list[LoggedRun]:
    """Return every run once, in the order given.

    If several folders are given, as with `runs/*`, those that are no run, another program's run,
    still without log rows, or damaged are skipped, each with a line on stderr.

    Raises:
        UserError: a path that is not a folder, or no usable run.
    """
    found, refused = [], []
    for path in dict.fromkeys(expanded(path).resolve() for path in paths):
        try:
            found.append(open_run(path))
        except UserError as error:
            refused.append(error)
            if not path.is_dir():
                raise
    if refused and not found:
        raise refused[0]
    for error in refused:
        print(one_line(f"note: skipped: {error}"), file=sys.stderr)
    once = [run.path for run in found]
    return [replace(run, name=_name(run.path, once)) for run in found]


def _name(path: Path, among: Sequence[Path]) -> str:
    """Return the shortest suffix of `path` that distinguishes it from all other paths."""
    for count in range(1, len(path.parts)):
        end = path.parts[-count:]
        if sum(other.parts[-count:] == end for other in among) == 1:
            return "/".join(end)
    return str(path)


def grouped_runs(runs: Sequence[LoggedRun]) -> list[Group]:
    """Group runs that differ only in seed, by game and options; cores in the order of `CORES`.

    A group has only one run of each seed, because another would not be a further sample: the run
    with the most agent steps, and among equal ones the newest. A line on stderr names each run left
    out.
    """
    members: dict[str, list[LoggedRun]] = {}
    for run in runs:
        members.setdefault(repr(sorted(run.computed().items())), []).append(run)
    groups = [_one_of_each_seed(group) for group in members.values()]
    groups.sort(key=lambda group: (group[0].game, _rank(group[0].core)))
    firsts = [group[0] for group in groups]
    return [
        Group(
            _label(group[0], [one for one in firsts if one.env == group[0].env]),
            _label(_first_of_settings(group[0], firsts), firsts),
            tuple(sorted(group, key=lambda run: run.seed)),
        )
        for group in groups
    ]


def _one_of_each_seed(group: Sequence[LoggedRun]) -> list[LoggedRun]:
    def progress(run: LoggedRun) -> tuple[int, str]:
        return run.agent_steps, str(run.meta.get("date_start"))

    furthest: dict[int, LoggedRun] = {}
    for run in sorted(group, key=progress, reverse=True):
        furthest.setdefault(run.seed, run)
    for run in group:
        if run is not (kept := furthest[run.seed]):
            said = f"note: skipped: {run.path} repeats seed {run.seed} of {kept.path}"
            print(
                one_line(f"{said}; of one seed, the longest or newest run counts"), file=sys.stderr
            )
    return [run for run in group if run is furthest[run.seed]]


def differing(runs: Sequence[LoggedRun]) -> list[str]:
    """Return the options, except the seed, that differ between `runs`."""
    everything = [run.computed() for run in runs]
    names = dict.fromkeys(name for options in everything for name in options)
    return [n for n in names if len({repr(options.get(n)) for options in everything}) > 1]


def shown(value: Any) -> str:
    """Return an option's value as typed on a command line; `-` if it has none."""
    if value is None:
        return "-"
    return (" ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _label(run: LoggedRun, firsts: list[LoggedRun]) -> str:
    """Return the core and the options that distinguish it from other groups, or a run's name.

    The name is used if more than `_MOST_CHANGES` options differ.
    """
    rivals = [one for one in firsts if one.core == run.core]
    options = [name for name in differing(rivals) if name != "env"]
    changes = _changes(run, options)
    alike = [one for one in rivals if _changes(one, options) == changes]
    if len(changes) <= _MOST_CHANGES and all(_settings(one) == _settings(run) for one in alike):
        return ", ".join([run.core, *changes])
    return f"{run.core} ({run.name})"


def _changes(run: LoggedRun, options: Sequence[str]) -> tuple[str, ...]:
    """Return those of the `options` for which the run has a value, in the form of labels."""
    values = {name: run.computed().get(name) for name in options}
    return tuple(f"{name} {shown(value)}" for name, value in values.items() if value is not None)


def _settings(run: LoggedRun) -> dict[str, Any]:
    return {name: value for name, value in run.computed().items() if name != "env"}


def _first_of_settings(run: LoggedRun, firsts: list[LoggedRun]) -> LoggedRun:
    return next(one for one in firsts if _settings(one) == _settings(run))


def _rank(core: str) -> int:
    return list(CORES).index(core) if core in CORES else len(CORES)


def _frames_per_step(options: dict[str, Any]) -> int:
    env, pairs = options["env"], tuple(options.get("env_options", ()))
    known = _known(env)
    if known is None or known.rom is None:
        return 1
    played = RunOptions(env=env, protocol=options["protocol"], env_options=pairs)
    return trained_rules(played).frames_per_step(env)


def _known(env: str) -> Name | None:
    """Return the environment's name, or None: a report does not import users' modules."""
    try:
        return None if ":" in env else resolve(env)
    except ValueError:
        return None
