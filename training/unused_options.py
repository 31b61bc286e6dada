"""Options that only some ways to run have a use for, and what is said of those given to others."""

from fastweights.host.flags import flag
from fastweights.training.options import RunOptions
from fastweights.training.schedules.plan import Schedule

LOCAL: tuple[Schedule, ...] = ("lockstep", "asynchronous")

# What is not here, every schedule uses.
USED_BY: dict[str, tuple[Schedule, ...]] = {
    "schedule": LOCAL,
    "actor_device": LOCAL,
    "env_groups": ("asynchronous",),
    "queue_size": ("asynchronous", "ray"),
    "ray_address": ("ray",),
    "num_actors": ("ray",),
    "actor_cpus": ("ray",),
    "actor_gpus": ("ray",),
}


def check_engine(asked: RunOptions, before: RunOptions) -> None:
    """Raise a one-line `ValueError` for an option of the other engine.

    `before`: a preset, or what a resumed run has; that may hold what the engine that it goes on
    with does not use.
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


def unused(asked: RunOptions, before: RunOptions, schedule: Schedule) -> list[str]:
    """The flags of options that were given, and that a run in this schedule does not use."""
    return [flag(name) for name in _given(asked, before) if schedule not in USED_BY[name]]


def _given(asked: RunOptions, before: RunOptions) -> list[str]:
    """Those that are neither as they were nor at their defaults, which do nothing."""
    default = RunOptions()
    return [
        name
        for name in USED_BY
        if getattr(asked, name) not in (getattr(before, name), getattr(default, name))
    ]
