"""Estimate the training speed of a cluster from the speed of its parts and the shared devices.

Each part has a limit: the agent steps/s of the cluster if all other parts took no time. Parts that
share a device alternate on it, so their limits combine to 1 / sum(1 / limit), as in the bound of
`benchmarks/training.py`. The estimate is the lowest limit; the part with this limit is saturated.
"""

from dataclasses import dataclass, fields, replace
from math import ceil, inf
from typing import NamedTuple

ASSUMPTIONS = (
    "each part is as fast as measured alone, for any number of devices",
    "all machines are alike and share environments, actions and updates evenly",
    "the cores of a machine without GPUs alternate between emulation and inference",
    "GPUs compute during emulation; a GPU that acts and learns alternates between the two",
    "between two steps an environment waits for its core and for --call-seconds",
    "each learning device (a GPU, or a machine without GPUs) has a whole batch",
    "gradients are summed in a ring of machines after the update, not during it; sums within a "
    "machine take no time",
    "rollouts and weights are sent uncompressed, in opposite directions, at full network speed",
    "learners send a copy of the weights to every acting machine",
    "memory, buses within a machine, stragglers and failures take no time",
)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Measured rates in agent steps/s, sizes in bytes, and settings of training."""

    environments: float  # environments on one core
    cpu_inference: float  # inference on one core
    cpu_update: float  # learning on one core
    gpu_inference: float | None = None  # inference on one GPU; None if unknown
    gpu_update: float | None = None  # learning on one GPU; None if unknown
    step_bytes: float  # of a rollout, per agent step
    weight_bytes: float  # of the network's weights
    call_seconds: float  # from a frame to its action, excluding emulation and inference
    network: float  # bytes/s of each machine, in each direction
    batch: int  # columns of a rollout, per learning device
    unroll: int  # agent steps in a rollout
    publish_every: int = 1  # updates from one broadcast of the weights to the next

    def __post_init__(self):
        for field in fields(self):
            value, least = getattr(self, field.name), field.name == "call_seconds"
            if value is not None and not (0 < value < inf or (least and value == 0)):
                raise ValueError(f"{field.name} must be above 0 and finite, not {value}")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Machines that act, and machines that only learn; if there are none, acting machines learn."""

    environments: int  # on all machines together
    machines: int = 1  # that act
    cores: int  # of each acting machine
    gpus: int = 0  # of each acting machine
    learners: int = 0  # machines that only learn
    learner_gpus: int = 0  # of each learning machine

    def __post_init__(self):
        for field in fields(self):
            least = 0 if field.name in ("gpus", "learners", "learner_gpus") else 1
            if getattr(self, field.name) < least:
                raise ValueError(
                    f"{field.name} must be at least {least}, not {getattr(self, field.name)}"
                )
        if bool(self.learners) != bool(self.learner_gpus):
            raise ValueError(
                "give both learners (machines that only learn) and learner_gpus (GPUs of each)"
            )

    @property
    def learning_devices(self) -> int:
        """The number of GPUs that learn, or of learning machines if no GPU learns."""
        return self.learners * self.learner_gpus or self.machines * max(self.gpus, 1)


class Estimate(NamedTuple):
    """The limits of a cluster's parts and their combination, in agent steps/s.

    `saturated`: the part that limits the rate. `updates_a_rollout`: number of updates from one
    rollout of all environments; at the last update, the acting weights are this many updates old.
    `cores_needed`: cores per acting machine at which emulation no longer limits the rate; None if
    the cores have other work, too.
    """

    limits: dict[str, float]
    rate: float
    saturated: str
    updates_a_rollout: float
    cores_needed: int | None


def limits(parts: Parts, layout: Layout) -> dict[str, float]:
    """Return each part's limit in agent steps/s; infinite for an unused part."""
    hosts = layout.learners or layout.machines
    links = min(layout.machines, hosts) * parts.network if layout.learners else inf
    batch = _batch(parts, layout)
    published = links * parts.publish_every * batch / (layout.machines * parts.weight_bytes)
    acting = layout.machines * _device(parts, "inference", layout.gpus, layout.cores)
    one = _device(parts, "update", layout.learner_gpus or layout.gpus, layout.cores)
    ring = 2 * (hosts - 1) / hosts * parts.weight_bytes / parts.network
    return {
        "turns": layout.environments / (1 / parts.environments + parts.call_seconds),
        "environments": layout.machines * layout.cores * parts.environments,
        "inference": acting,
        "learner": batch / (batch / (hosts * one) + ring),
        "network": links / parts.step_bytes,
        "broadcast": published,
    }


def estimate(parts: Parts, layout: Layout) -> Estimate:
    """Return the estimate for `layout`. Raises `ValueError` if the speed of its GPUs is unknown."""
    found = limits(parts, layout)
    shared = _shared(layout)
    alone = [(name,) for name in found if name not in shared]
    rate, names = min((together(found, names), names) for names in (shared, *alone) if names)
    return Estimate(
        found,
        rate,
        min(names, key=found.__getitem__),
        layout.environments * parts.unroll / _batch(parts, layout),
        _cores_needed(parts, layout, found) if layout.gpus else None,
    )


def together(limits: dict[str, float], names: tuple[str, ...]) -> float:
    """Return the combined limit in agent steps/s of parts that alternate on one device."""
    seconds = sum(1 / limits[name] for name in names)
    return 1 / seconds if seconds else inf


def _shared(layout: Layout) -> tuple[str, ...]:
    """Return the names of the parts that share a device."""
    on_cores = () if layout.gpus else ("environments", "inference")
    if layout.learners:
        return on_cores
    return (*(on_cores or ("inference",)), "learner")


def _device(parts: Parts, work: str, gpus: int, cores: int) -> float:
    """Return the agent steps/s of one machine's devices."""
    if not gpus:
        return cores * getattr(parts, f"cpu_{work}")
    speed = getattr(parts, f"gpu_{work}")
    if speed is None:
        raise ValueError(f"a layout with GPUs needs their speed: add --gpu-{work}")
    return gpus * speed


def _batch(parts: Parts, layout: Layout) -> int:
    """Return the agent steps in one update of all learning devices."""
    return layout.learning_devices * parts.batch * parts.unroll


def _cores_needed(parts: Parts, layout: Layout, found: dict[str, float]) -> int:
    others = {name: limit for name, limit in found.items() if name != "environments"}
    shared = _shared(layout)
    rate = min(*others.values(), together(others, shared) if shared else inf)
    return ceil(rate / (layout.machines * parts.environments) - 1e-9)


def sweep(parts: Parts, layout: Layout, environments: list[int]) -> list[float]:
    """Return the agent steps/s of `layout` for each number of environments."""
    return [estimate(parts, replace(layout, environments=n)).rate for n in environments]
