"""Several learners of one run, each a process with its own environments and its own GPU.

    torchrun --nproc-per-node 4 launch/atari.py --core rdn --env Qbert

Options describe the whole run: `--num-envs`, `--batch-size` and `--total-steps` are sums over all
learners, so nothing has to be rescaled for another number of learners. In lockstep, with as many
environments as the batch size, the run is the same for any number of learners up to rounding. They
communicate through torch.distributed (NCCL between GPUs, gloo between CPUs): the sum of gradients
and losses, and a few rows of plain numbers. docs/design/replicas.md has the reasons.
"""

import contextlib
import io
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from fastweights.host import UserError, one_line
from fastweights.training.rendezvous import meet

_PATIENCE = timedelta(minutes=30)  # wait for a learner that is stopped or plays test games
_ROOM = 64  # rows of plain numbers in one exchange; more rows take another exchange


class LostLearner(UserError):
    """Another learner of this run has ended."""


class Replicas:
    """This process's place among the learners, and their communication.

    With one learner (`rank` 0 of `count` 1), the methods leave their arguments unchanged. `joined`,
    `sum`, `gather` and `broadcast` must be called by all learners or by none. They raise
    `LostLearner` if a learner has ended.
    """

    def __init__(self, rank: int = 0, count: int = 1, local_rank: int = 0, local_count: int = 1):
        self.rank, self.count = rank, count
        self.local_rank, self.local_count = local_rank, local_count
        self._launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None

    @classmethod
    def from_environment(cls) -> Self:
        """Return the place that torchrun sets in RANK, WORLD_SIZE, ...; without it, one learner."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if not all(name in os.environ for name in names):
            return cls()
        place = [os.environ[name] for name in names]
        if not all(number.isdecimal() for number in place):
            known = ", ".join(map("=".join, zip(names, place, strict=True)))
            raise UserError(f"the environment must number this learner, as torchrun does: {known}")
        return cls(*map(int, place))

    @property
    def leads(self) -> bool:
        """Whether this is the first learner, which writes the run folder and prints."""
        return self.rank == 0

    def share(self, total: int, option: str) -> range:
        """Return this learner's part of `range(total)`; `ValueError` if it cannot be divided."""
        if total % self.count:
            raise ValueError(
                f"{option} {total} is not a multiple of the {self.count} learners that torchrun "
                f"started: try {option} {-(-total // self.count) * self.count}"
            )
        each = total // self.count
        return range(self.rank * each, (self.rank + 1) * each)

    def device(self, device: torch.device, option: str) -> torch.device:
        """Return this learner's device; for `cuda`, each learner takes its machine's next GPU.

        Raises:
            ValueError: several learners on one machine were given the same GPU.
        """
        if self.count == 1 or device.type != "cuda":
            return device
        if device.index is None:
            return torch.device("cuda", self.local_rank)
        if self.local_count > 1:
            raise ValueError(
                f"{option} {device} is a single GPU for the {self.local_count} learners on this "
                f"machine: leave it out, or use {option} cuda, and each learner takes another GPU"
            )
        return device

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """Connect the learners for the block; `device` is this learner's."""
        if self.count == 1:
            yield
            return
        if self.local_count == self.count:
            _stay_on_this_machine()
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        with _lost_learners():
            store, _, _ = next(dist.rendezvous("env://", timeout=_PATIENCE))
            name = meet(store, self.rank, self.count, _PATIENCE.total_seconds())
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
                store=dist.PrefixStore(name, store),
                rank=self.rank,
                world_size=self.count,
                timeout=_PATIENCE,
                device_id=device if on_gpu else None,
            )
        try:
            with self._quiet():
                yield
        finally:
            with contextlib.suppress(RuntimeError):  # another learner may have left already
                dist.destroy_process_group()

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all learners, bit-identical in each of them."""
        # A killed torchrun would leave its learners running.
        if self._launcher not in (None, os.getppid()):
            raise LostLearner("the torchrun that started this learner has ended")
        if self.count == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in alike])
            with _lost_learners():
                dist.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, rows: Sequence[Sequence[float]], columns: int) -> list[list[float]]:
        """Return the rows of all learners, each with `columns` numbers, in the learners' order."""
        if self.count == 1:
            return [list(row) for row in rows]
        own = torch.tensor(rows, dtype=torch.float64).reshape(-1, columns)
        counts = own.new_full((1, columns), len(own))
        parts = self._gather(torch.cat([counts, _filled(own[:_ROOM], _ROOM)]))
        lengths = [int(part[0, 0]) for part in parts]
        if (longest := max(lengths)) > _ROOM:
            rests = self._gather(_filled(own[_ROOM:], longest - _ROOM))
            parts = [torch.cat(both) for both in zip(parts, rests, strict=True)]
        return [
            row
            for part, length in zip(parts, lengths, strict=True)
            for row in part[1 : length + 1].tolist()
        ]

    def _gather(self, own: Tensor) -> list[Tensor]:
        """Return the tensors of all learners, which have the same shape."""
        parts = [torch.empty_like(own) for _ in range(self.count)]
        with _lost_learners():
            dist.all_gather(parts, own)
        return parts

    def broadcast(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the first learner's `payload` of plain values and tensors."""
        if self.count == 1:
            return payload
        buffer = io.BytesIO()
        torch.save(payload, buffer)
        content = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8).clone()
        with _lost_learners():
            size = torch.tensor([len(content)])
            dist.broadcast(size, 0)
            content = content if self.leads else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(content, 0)
        sent = io.BytesIO(content.numpy().tobytes())
        return torch.load(sent, map_location="cpu", weights_only=True)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Suppress the output of all learners but the first; errors still reach stderr."""
        if self.leads:
            yield
            return
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield


@contextmanager
def _lost_learners() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:  # of this learner
        raise
    except RuntimeError as error:
        raise LostLearner(
            "another learner of this run has ended; its output says why. With torchrun "
            "--max-restarts 9, --xpid NAME and --auto-resume, such a run resumes by itself (error "
            f"seen here: {one_line(str(error))[:200]})"
        ) from error


def _stay_on_this_machine() -> None:
    """Let the learners listen on loopback only, unless environment variables say otherwise."""
    name = "lo0" if sys.platform == "darwin" else "lo"
    if name in (interface for _, interface in socket.if_nameindex()):
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", name)


def _filled(rows: Tensor, length: int) -> Tensor:
    """Return `rows`, padded with zeros to `length`."""
    return torch.cat([rows, rows.new_zeros(length - len(rows), rows.shape[1])])
