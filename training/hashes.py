"""`RUN/hashes.csv`: hashes of the first rollouts and weights of a lockstep run.

One row per update: hashes of its rollout and of the weights after it, and the conditions of the
computation, because the same seed gives the same bits only under the same conditions. `replay.py`
recomputes them. A resumed run adds no rows, because its emulators start new games.
"""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.agents import Learner, Network, Rollout
from fastweights.host import (
    UserError,
    code_revision,
    describe_os_error,
    machine,
    versions,
    write_bytes,
)
from fastweights.kernels import BuildError, compiler, compiler_version, requested_backend
from fastweights.training.options import RunOptions

FILE = "hashes.csv"
UPDATES = 10  # number of recorded updates
Record = Callable[[Rollout, Learner], None]


class Hashed(NamedTuple):
    """One update; `step`: agent steps learned from, this update's included."""

    update: int  # from 1, refused updates included
    step: int
    rollout: str
    weights: str


@dataclass(frozen=True)
class Hashes:
    """The content of a hash file."""

    updates: tuple[Hashed, ...]  # the first updates, at least one
    conditions: dict[str, str]


def hashed(update: int, rollout: Rollout, learner: Learner) -> Hashed:
    """Return the hashes of the update that `learner` has just made, or refused, with `rollout`."""
    weights, seen = learner.network.state_dict(), rollout._asdict()
    # Hash files of earlier versions lack both.
    del seen["value"]
    if not rollout.cut_value.any():
        del seen["cut_value"]
    return Hashed(update, learner.steps, digest(seen), digest(weights))


def digest(tensors: dict[str, Any]) -> str:
    """Return BLAKE2b of tensors, and of tuples of them: names, dtypes, shapes and bytes."""
    total = blake2b(digest_size=16)
    for name, tensor in _flat(tensors):
        plain = tensor.detach().cpu().contiguous()
        total.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        total.update(plain.view(-1).view(torch.uint8).numpy())
    return total.hexdigest()


def hash_conditions(options: RunOptions, device: torch.device, network: Network) -> dict[str, str]:
    """Return the other conditions that determine the bits, in this process.

    Args:
        options: the run's options.
        device: the learner's device.
        network: the network with its initial weights. They are a condition if they come from
            another agent, because it may continue training.
    """
    git, name = code_revision(), str(device)
    if device.type == "cuda":
        name = f"{name} ({torch.cuda.get_device_name(device)})"
    given = {"init_from": digest(network.state_dict())} if options.init_from else {}
    return given | {
        "processor": machine()["processor"],
        "device": name,
        "threads": str(torch.get_num_threads()),
        "torch": str(versions()["torch"]),
        "kernels": requested_backend(),
        "compiler": _compiler(),
        "code": "unknown" if git is None else git["commit"] + " (changed)" * git["is_dirty"],
    }


def hash_recorder(
    folder: Path, options: RunOptions, device: torch.device, network: Network
) -> Record:
    """Return a function that records the first updates of the new run in `folder`.

    The other arguments are those of `hash_conditions`. The function raises `UserError`, one line,
    if the disk is full.
    """
    around, rows = hash_conditions(options, device, network), []

    def record(rollout: Rollout, learner: Learner) -> None:
        if len(rows) == UPDATES:
            return
        rows.append(hashed(len(rows) + 1, rollout, learner))
        try:
            write_hashes(folder, Hashes(tuple(rows), around))
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"cannot write {folder / FILE}: {reason}; free disk space") from error

    return record


def record_nothing(rollout: Rollout, learner: Learner) -> None:
    """Record nothing, for runs that cannot be replayed."""


def write_hashes(folder: Path, hashes: Hashes) -> None:
    """Write the hash file. Raises `OSError`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow((*Hashed._fields, *hashes.conditions))
    writer.writerows((*row, *hashes.conditions.values()) for row in hashes.updates)
    write_bytes(folder / FILE, text.getvalue().encode())


def read_hashes(folder: Path) -> Hashes:
    """Return the hash file; raise `UserError`, one line, if it is missing or damaged."""
    path = folder / FILE
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        own = [{name: row.pop(name) for name in Hashed._fields} for row in rows]
        updates = tuple(
            Hashed(**row | {"update": int(row["update"]), "step": int(row["step"])}) for row in own
        )
        if [update.update for update in updates] != list(range(1, len(updates) + 1)) or not rows:
            raise ValueError("its updates are not 1, 2, 3, ...")
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} has no {FILE}: it was asynchronous, had several learners, was made by an "
            "older version, or has not learned yet"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read the hashes {describe_os_error(error)}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}): no comparison is possible") from error
    return Hashes(updates, rows[0])


def _flat(tensors: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, value in tensors.items():
        if isinstance(value, Tensor):
            yield name, value
        else:
            yield from _flat({f"{name}.{index}": part for index, part in enumerate(value)})


def _compiler() -> str:
    try:
        return (compiler_version(compiler()).splitlines() or ["unknown"])[0]
    except (BuildError, OSError):
        return "none"
