"""How fast a cluster would train, on paper: the speed of its parts against what has to share them.

Every part has a limit, the agent steps/s that the cluster would reach if nothing else held it up.
Parts that share a device take turns on it, so theirs combine to 1 / sum(1 / limit), as the bound of
`benchmarks/training.py` does. The estimate is the lowest of all; that part is saturated.
"""

from dataclasses import dataclass, fields, replace
from math import ceil, inf
from typing import NamedTuple

ASSUMPTIONS = (
    "parts keep the speed that they were measured at, alone, whatever the number of devices",
    "machines are alike; environments, actions and updates are spread evenly over them",
    "a machine without GPUs chooses actions on its cores, which emulate and infer in turns",
    "GPUs overlap with emulation; a GPU that acts and learns does one at a time",
    "an environment waits for its own core and for --call-seconds between two of its steps",
    "each learning device (GPU, or machine without one) learns from a batch of its own",
    "gradients are summed around a ring of machines after the update, not during it; within a "
    "machine that costs nothing",
    "rollouts and weights travel in full, in opposite directions, at the network's whole speed",
    "learners send every machine that plays its own copy of the weights",
    "memory, buses within a machine, stragglers and failures cost nothing",
)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What was measured, in agent steps/s, and what an agent step and the weights weigh."""

    environments: float  # one core that emulates
    cpu_inference: float  # one core
    cpu_update: float  # one core
    gpu_inference: float | None = None  # one GPU; None: not known
    gpu_update: float | None = None  # one GPU
    step_bytes: float  # of a rollout, an agent step
    weight_bytes: float  # of the network
    call_seconds: float  # from a frame to its action, beyond what the rates say
    network: float  # bytes/s in each direction, of each machine
    batch: int  # columns of a rollout, of each learning device
    unroll: int  # agent steps in a rollout
    publish_every: int = 1  # updates from one broadcast of the weights to the next

    def __post_init__(self):
        for field in fields(self):
            value, least = getattr(self, field.name), field.name == "call_seconds"
            if value is not None and not (0 < value < inf or (least and value == 0)):
                raise ValueError(f"{field.name} must be above 0 and finite, not {value}")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Machines that play, and machines that only learn; without those, the former learn too."""

    environments: int  # in all
    machines: int = 1  # that play
    cores: int  # of each
    gpus: int = 0  # of each
    learners: int = 0  # machines that only learn
    learner_gpus: int = 0  # of each

    def __post_init__(self):
        for field in fields(self):
            least = 0 if field.name in ("gpus", "learners", "learner_gpus") else 1
            if getattr(self, field.name) < least:
                raise ValueError(
                    f"{field.name} must be at least {least}, not {getattr(self, field.name)}"
                )
        if bool(self.learners) != bool(self.learner_gpus):
            raise ValueError(
                "learners and learner_gpus go together: machines that only learn, and GPUs of each"
            )

    @property
    def learning_devices(self) -> int:
        """GPUs that learn, or machines where there is none."""
        return self.learners * self.learner_gpus or self.machines * max(self.gpus, 1)


class Estimate(NamedTuple):
    """`limits` and `rate` in agent steps/s; `saturated` is the part that holds up the rest.

    `updates_a_rollout`: updates made from one rollout of all environments; the last of them learns
    from actions by weights that many updates old. `cores_needed`: of each playing machine, for
    everything but emulation to be the limit; None where cores do more than emulate.
    """

    limits: dict[str, float]
    rate: float
    saturated: str
    updates_a_rollout: float
    cores_needed: int | None


def limits(parts: Parts, layout: Layout) -> dict[str, float]:
    """Agent steps/s that each part alone would allow; infinite where it is not needed."""
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
    """What `layout` comes to. Raises `ValueError` where it has GPUs whose speed is not known."""
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
    """Agent steps/s of parts that take turns on one device."""
    seconds = sum(1 / limits[name] for name in names)
    return 1 / seconds if seconds else inf


def _shared(layout: Layout) -> tuple[str, ...]:
    """The parts that share a device."""
    on_cores = () if layout.gpus else ("environments", "inference")
    if layout.learners:
        return on_cores
    return (*(on_cores or ("inference",)), "learner")


def _device(parts: Parts, work: str, gpus: int, cores: int) -> float:
    """Agent steps/s of one machine's devices."""
    if not gpus:
        return cores * getattr(parts, f"cpu_{work}")
    speed = getattr(parts, f"gpu_{work}")
    if speed is None:
        raise ValueError(f"a layout with GPUs needs their speed: add --gpu-{work}")
    return gpus * speed


def _batch(parts: Parts, layout: Layout) -> int:
    """Agent steps in one update of all learning devices."""
    return layout.learning_devices * parts.batch * parts.unroll


def _cores_needed(parts: Parts, layout: Layout, found: dict[str, float]) -> int:
    others = {name: limit for name, limit in found.items() if name != "environments"}
    shared = _shared(layout)
    rate = min(*others.values(), together(others, shared) if shared else inf)
    return ceil(rate / (layout.machines * parts.environments) - 1e-9)


def sweep(parts: Parts, layout: Layout, environments: list[int]) -> list[float]:
    """Agent steps/s of `layout` with these numbers of environments."""
    return [estimate(parts, replace(layout, environments=n)).rate for n in environments]
