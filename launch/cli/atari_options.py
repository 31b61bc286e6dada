"""From `sys.argv` to resolved options: presets, resumed runs and TorchBeast's flags included."""

import argparse
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from fastweights.envs.naming import resolve
from fastweights.host.commands import typed
from fastweights.launch.cli.parser import typed_options
from fastweights.launch.cli.unused_options import check_engine
from fastweights.training.options import PRESETS, RunOptions, check, preset


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """Train an agent with fast-weight memory.

    Steps are agent steps; on Atari one agent step is 4 emulator frames. Options start from a
    preset (`--preset`) and are changed one by one. Flags of TorchBeast work under their names.
    """

    preset: str = "paper"
    """paper (published recipe, full gradients through time), published (its one-step gradients),
    quick (minutes on two cores), maze (half a minute), or plain (paper with nothing made fast)."""
    resume: Path | None = None
    """A run folder to go on with; its options are kept."""
    list_cores: bool = False
    """Show every core with its equation, source and parameter count, and stop."""
    list_envs: bool = False
    """Show the names of all games, and stop."""
    run: Annotated[RunOptions, tyro.conf.arg(name="")] = field(default_factory=RunOptions)


def parse(arguments: Sequence[str], saved: RunOptions | None = None) -> CommandLine:
    """Parses a command line; `saved` are a resumed run's options, which then are the defaults.

    Raises `UserError` for unknown flags and malformed values, `ValueError` for an unknown preset,
    core or combination.
    """
    known = peek(arguments)
    defaults = saved or _for_game(preset(known.preset or "paper", known.core), known.env)
    command = typed_options(
        CommandLine,
        arguments,
        default=CommandLine(run=defaults),
        prog=typed("atari"),
        description=_description(),
    )
    command = replace(command, run=_as_torchbeast(command.run, defaults))
    check_engine(command.run, defaults)
    check(command.run)
    return command


def _for_game(defaults: RunOptions, env: str | None) -> RunOptions:
    """The preset without the options of its own game, where another game is asked for."""
    if env is None or not defaults.env_options or resolve(env)[:2] == resolve(defaults.env)[:2]:
        return defaults
    return replace(defaults, env_options=())


def _as_torchbeast(run: RunOptions, defaults: RunOptions) -> RunOptions:
    """There an actor is one environment, and so it is here unless Ray has actors of its own."""
    if run.engine == "ray" or run.num_actors == defaults.num_actors:
        return run
    if run.num_envs not in (defaults.num_envs, run.num_actors):
        raise ValueError(
            f"--num-actors {run.num_actors} is another name for --num-envs {run.num_envs} without "
            "--engine ray: give one of them"
        )
    return replace(run, num_envs=run.num_actors, num_actors=defaults.num_actors)


def peek(arguments: Sequence[str]) -> argparse.Namespace:
    """The options that decide what the others' defaults are: preset, core, what to resume."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    early.add_argument("--preset", default=None)
    early.add_argument("--core", default="rdn")
    early.add_argument("--resume", type=Path, default=None)
    early.add_argument("--auto-resume", "--auto_resume", action="store_true")
    early.add_argument("--savedir", type=Path, default=RunOptions.savedir)
    early.add_argument("--xpid", default=None)
    early.add_argument("--env", default=None)
    try:
        return early.parse_known_args(arguments)[0]
    except argparse.ArgumentError:  # a flag without its value: tyro says it better
        return early.parse_args([])


def _description() -> str:
    options = (
        "--core rdn --env Qbert",
        "--preset quick --core lstm --env Qbert",
        "--preset maze --core delta_net",
        "--resume runs/latest",
    )
    examples = (f"{typed('atari')} {one}" for one in options)
    presets = f"Presets: {', '.join(PRESETS)}; `--preset X --help` shows what X sets."
    return "\n\n".join((inspect.cleandoc(CommandLine.__doc__), presets, *examples))
