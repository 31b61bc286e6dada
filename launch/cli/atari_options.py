"""Turn `sys.argv` into resolved options, including presets, resumed runs and TorchBeast's flags."""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

import tyro

from fastweights.agents import STEMS, LearnerConfig, without_unread
from fastweights.cores import CORES, core_defaults, import_core
from fastweights.envs import PROTOCOLS
from fastweights.host import PRECISIONS, HelpLayout, given, typed_command
from fastweights.kernels import BACKENDS
from fastweights.launch.cli.parser import early_options, typed_options
from fastweights.training import (
    RunOptions,
    changes_of_preset,
    check_engine,
    check_options,
    preset,
    with_full_path,
)

# Options that `--help` describes; the chosen core's options follow.
FIRST = ("env", "core", "preset", "total_steps", "seed", "resume")
# Grouped by the folder that uses them; options not listed here belong to training.
GROUPS = {
    "Environment (envs/)": ("env", "env_options", "bootstrap_truncated", "protocol", "list_envs"),
    "Memory (cores/)": ("core", "core_*", "bptt", "kernels", "list_cores"),
    "Network (agents/)": (
        *("stem", "precision", "channels_last"),
        *("feed_last_action", "reset_inputs", "head_norm", "head_init", "value_scale"),
    ),
    "Learner (agents/)": tuple(field.name for field in fields(LearnerConfig)),
    "Run folder (records/)": (
        *("resume", "init_from", "xpid", "savedir", "auto_resume"),
        *("checkpoint_minutes", "keep_every", "disable_checkpoint"),
    ),
    "Test games (evaluation/)": ("evaluate_*",),
    "Training (training/)": ("preset", "seed"),
}
VALUES = {
    "core": CORES,
    "protocol": PROTOCOLS,
    "stem": STEMS,
    "precision": PRECISIONS,
    "kernels": BACKENDS,
}
_SCREEN = HelpLayout(groups=GROUPS, values=VALUES, star="*: differs from the preset paper")


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """Train an agent with fast-weight memory."""

    preset: str = "paper"
    """Recipe that takes days (paper, published, plain), an hour (afternoon) or minutes (quick; maze
    and vectors for small games); see docs/runs.md."""
    resume: Path | None = None
    """Run folder to resume; its options are kept."""
    list_cores: bool = False
    """List all cores with equation, source and parameter count, then exit."""
    list_envs: bool = False
    """List the names of all games, then exit."""
    run: Annotated[RunOptions, tyro.conf.arg(name="")] = field(default_factory=RunOptions)


def parse(arguments: Sequence[str], saved: RunOptions | None = None) -> CommandLine:
    """Parse a command line; the options of a resumed run, `saved`, are the defaults.

    Raises `UserError` for unknown flags and malformed values, `ValueError` for an unknown preset,
    core or combination.
    """
    known = peek(arguments)
    name = "paper" if known.preset is None else known.preset
    defaults = saved or preset(name, known.core, known.env)
    command = typed_options(
        CommandLine,
        _with_values(arguments),
        _layout(defaults),
        default=CommandLine(run=defaults),
        prog=typed_command("atari"),
        description=_description(),
    )
    typed = given(("num_envs", *(field.name for field in fields(LearnerConfig))), arguments)
    run = with_full_path(_as_torchbeast(command.run, defaults, "num_envs" in typed))
    learner = without_unread(run.learner, typed)
    command = replace(command, run=replace(run, learner=learner))
    check_engine(command.run, defaults)
    check_options(command.run)
    return command


def _with_values(arguments: Sequence[str]) -> list[str]:
    """Add the optional value to `--feed-last-action` and `--no-feed-last-action`."""
    rewritten: list[str] = []
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue="--"):
        match argument.replace("_", "-"):
            case "--feed-last-action" if following.startswith("--"):
                rewritten += ["--feed-last-action", "true"]
            case "--no-feed-last-action":
                rewritten += ["--feed-last-action", "false"]
            case _:
                rewritten.append(argument)
    return rewritten


def _as_torchbeast(run: RunOptions, defaults: RunOptions, has_num_envs: bool) -> RunOptions:
    """Treat `--num-actors` as `--num-envs`, as TorchBeast does, unless the engine is Ray."""
    if run.engine == "ray" or run.num_actors == defaults.num_actors:
        return run
    if has_num_envs and run.num_envs != run.num_actors:
        raise ValueError(
            f"--num-actors {run.num_actors} contradicts --num-envs {run.num_envs}: they mean the "
            "same without --engine ray; give only one"
        )
    return replace(run, num_envs=run.num_actors, num_actors=defaults.num_actors)


def peek(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options that determine the others' defaults: preset, core, the run to resume.

    If the core is in a user's module (`my_module:name`), the module is imported.
    """
    known = early_options(
        arguments,
        preset={},
        core={"default": "rdn"},
        resume={"type": Path},
        auto_resume={"action": "store_true"},
        savedir={"type": Path, "default": RunOptions.savedir},
        xpid={},
        env={},
    )
    import_core(known.core)
    return known


def _layout(defaults: RunOptions) -> HelpLayout:
    own = core_defaults(defaults.core) if defaults.core in CORES else {}
    marked = changes_of_preset(defaults)
    return replace(_SCREEN, described=(*FIRST, *own), defaults=own, marked=marked)


def _description() -> str:
    command = typed_command("atari")
    return f"""Train an agent with fast-weight memory.

    {command} --core rdn --env Qbert
    {command} --preset quick --core lstm --env Qbert
    {command} --resume runs/latest

Steps are agent steps; on Atari, one is 4 emulator frames. `--preset X --help` shows what X sets.
TorchBeast's flags work, too."""
