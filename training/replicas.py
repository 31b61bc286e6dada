"""Several learners of one run, each a process with its own environments and its own GPU.

    torchrun --nproc-per-node 4 launch/atari.py --core rdn --env Qbert

Options describe the whole run: `--num-envs`, `--batch-size` and `--total-steps` are sums over all
learners, so the run learns the same whatever their number. What they say to each other goes through
torch.distributed (NCCL between GPUs, gloo between CPUs): the sum of gradients and losses, and a few
rows of plain numbers. docs/design/replicas.md has the reasons.
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

from fastweights.host.errors import UserError, one_line
from fastweights.training.meeting import meet

_PATIENCE = timedelta(minutes=30)  # for a learner that is stopped, or plays test games
_ROOM = 64  # rows of plain numbers that go in one exchange; more take a second


class LostLearner(UserError):
    """Another learner of this run has gone."""


class Replicas:
    """This process's place among the learners, and what they do together.

    Alone (`rank` 0 of `count` 1) everything here leaves its argument as it is. Every method below
    `share` is called by all learners or none, and raises `LostLearner` where one has gone.
    """

    def __init__(self, rank: int = 0, count: int = 1, local_rank: int = 0, local_count: int = 1):
        self.rank, self.count = rank, count
        self.local_rank, self.local_count = local_rank, local_count
        self._launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None

    @classmethod
    def from_environment(cls) -> Self:
        """As torchrun says in RANK, WORLD_SIZE and their LOCAL_ kin; alone without it."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if not all(name in os.environ for name in names):
            return cls()
        return cls(*(int(os.environ[name]) for name in names))

    @property
    def is_first(self) -> bool:
        """The first learner keeps the run folder and speaks."""
        return self.rank == 0

    def share(self, total: int, option: str) -> range:
        """This learner's part of `range(total)`. Raises `ValueError` unless all are equal."""
        if total % self.count:
            raise ValueError(
                f"{option} {total} is not a multiple of the {self.count} learners that torchrun "
                f"started: try {option} {-(-total // self.count) * self.count}"
            )
        each = total // self.count
        return range(self.rank * each, (self.rank + 1) * each)

    def device(self, device: torch.device, option: str) -> torch.device:
        """Where this learner learns if all were told `device`: each has its machine's next GPU.

        Raises `ValueError` where several on one machine were told one and the same.
        """
        if self.count == 1 or device.type != "cuda":
            return device
        if device.index is None:
            return torch.device("cuda", self.local_rank)
        if self.local_count > 1:
            raise ValueError(
                f"{option} {device} is one GPU for the {self.local_count} learners of this "
                f"machine: leave it out, or {option} cuda, and each takes the next"
            )
        return device

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """In the block, learners can talk to each other; `device` is where this one learns."""
        if self.count == 1:
            yield
            return
        _stay_on_this_machine_if(self.local_count == self.count)
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
            with contextlib.suppress(RuntimeError):  # of a group that another has left already
                dist.destroy_process_group()

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over all learners, the same bits in each of them."""
        self._check_launcher()
        if self.count == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _lost_learners():
            dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def gather(self, rows: Sequence[Sequence[float]], columns: int) -> list[list[float]]:
        """The rows of all learners, each of `columns` numbers, in the learners' order."""
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
        """The tensors of all learners, which have one shape."""
        parts = [torch.empty_like(own) for _ in range(self.count)]
        with _lost_learners():
            dist.all_gather(parts, own)
        return parts

    def broadcast(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The first learner's plain `payload`, of tensors, numbers, strings, lists and dicts."""
        if self.count == 1:
            return payload
        buffer = io.BytesIO()
        torch.save(payload, buffer)
        content = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8).clone()
        with _lost_learners():
            size = torch.tensor([len(content)])
            dist.broadcast(size, 0)
            content = content if self.is_first else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(content, 0)
        sent = io.BytesIO(content.numpy().tobytes())
        return torch.load(sent, map_location="cpu", weights_only=True)

    def _check_launcher(self) -> None:
        """A torchrun that is killed takes nobody with it: its learners would go on, unseen."""
        if self._launcher not in (None, os.getppid()):
            raise LostLearner("the torchrun that started this learner has gone")

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """What is said, the first says; errors and warnings still reach stderr from everyone."""
        if self.is_first:
            yield
            return
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield


@contextmanager
def _lost_learners() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:  # this learner's own
        raise
    except RuntimeError as error:
        raise LostLearner(
            "another learner of this run has gone, and its own output says why; with torchrun "
            "--max-restarts 9, --xpid NAME and --auto-resume such a run goes on by itself (what "
            f"was noticed here: {one_line(str(error))[:200]})"
        ) from error


def _stay_on_this_machine_if(alone: bool) -> None:
    """Learners on one machine listen on loopback alone, unless the environment says otherwise."""
    if not alone:
        return
    name = "lo0" if sys.platform == "darwin" else "lo"
    if name in (interface for _, interface in socket.if_nameindex()):
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", name)


def _filled(rows: Tensor, length: int) -> Tensor:
    """`rows`, and rows of zeros up to `length`."""
    return torch.cat([rows, rows.new_zeros(length - len(rows), rows.shape[1])])
