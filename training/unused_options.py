"""Options that only some schedules or engines use, and notes on a run's options."""

import re
from collections.abc import Iterator

from fastweights.agents import OBJECTIVES
from fastweights.envs import protocol_named, resolve
from fastweights.host import flag
from fastweights.training.options import RunOptions
from fastweights.training.schedules.plan import Schedule

LOCAL: tuple[Schedule, ...] = ("lockstep", "asynchronous")

# Options not listed here are used by every schedule.
USED_BY: dict[str, tuple[Schedule, ...]] = {
    "schedule": LOCAL,
    "actor_device": LOCAL,
    "actor_threads": ("lockstep",),
    "env_groups": ("asynchronous",),
    "queue_size": ("asynchronous", "ray"),
    "ray_address": ("ray",),
    "num_actors": ("ray",),
    "actor_cpus": ("ray",),
    "actor_gpus": ("ray",),
}

_VERSION = re.compile(r"-v\d+$")  # of a Gymnasium id


def check_engine(asked: RunOptions, before: RunOptions) -> None:
    """Raise a one-line `ValueError` for an option of the other engine.

    `before`: options of a preset or of a resumed run, which may set values that the engine does
    not use.
    """
    schedules: tuple[Schedule, ...] = ("ray",) if asked.engine == "ray" else LOCAL
    other = "local" if asked.engine == "ray" else "ray"
    for name in _given(asked, before):
        if not set(schedules) & set(USED_BY[name]):
            given = flag(name)
            raise ValueError(
                f"{given} belongs to --engine {other}, and the engine is {asked.engine}: "
                f"leave {given} out, or --engine {other}"
            )


def ignored_flags(asked: RunOptions, before: RunOptions, schedule: Schedule) -> list[str]:
    """Return the flags of given options that a run in this schedule does not use."""
    return [flag(name) for name in _given(asked, before) if schedule not in USED_BY[name]]


def notes_on_options(options: RunOptions, before: RunOptions, schedule: Schedule) -> Iterator[str]:
    """Yield a line about each option that changes nothing in this run; `before` as above."""
    learner = options.learner
    for name in ignored_flags(options, before, schedule):
        yield f"{name} has no effect in the {schedule} schedule"
    too_many_groups = schedule == "asynchronous" and options.env_groups > options.num_envs
    if too_many_groups and "env_groups" in _given(options, before):
        yield (
            f"--env-groups {options.env_groups} is reduced to {options.num_envs} groups, one per "
            "environment"
        )
    if options.bptt != "full" and options.bptt >= options.unroll_length:
        yield f"--bptt {options.bptt} has no effect: a rollout has {options.unroll_length} steps"
    has_one_step = options.fills_one_batch and not learner.reuses_batches
    if schedule == "lockstep" and has_one_step and OBJECTIVES[learner.objective].clips:
        yield (
            f"--objective {learner.objective} never clips the first gradient step on a batch, and "
            "each batch has only one: add --epochs or --minibatches"
        )
    if options.keep_every and options.disable_checkpoint:
        yield "--keep-every keeps nothing: --disable-checkpoint saves no weights"
    if options.evaluate_episodes and options.disable_checkpoint:
        yield "no test games after training: --disable-checkpoint saves no weights to play them"


def notes_on_environment(options: RunOptions) -> Iterator[str]:
    """Yield a line where the environment's name or the defaults may mislead; the name is valid."""
    game = resolve(options.env)
    if game.rom and _VERSION.search(options.env):
        yield (
            f"{options.env} only selects the game: --protocol {options.protocol} sets the rules, "
            f"with sticky actions at {protocol_named(options.protocol).sticky:g} unless "
            "--env-options changes it (0.25 in Gymnasium's v5)"
        )
    limit = game.time_limit(options.environment_options())
    if limit and not options.bootstrap_truncated:
        yield (
            f"{options.env} is cut off after {limit:,} steps, which counts as the "
            "episode's end; --bootstrap-truncated adds the value of what would have followed"
        )


def _given(asked: RunOptions, before: RunOptions) -> list[str]:
    """Return the options that differ both from `before` and from their defaults."""
    default = RunOptions()
    return [
        name
        for name in USED_BY
        if getattr(asked, name) not in (getattr(before, name), getattr(default, name))
    ]
