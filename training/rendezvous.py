"""Rendezvous of a run's learners, under a new name each time.

torchrun keeps one store for all its restarts, including old entries of killed processes, such as
their addresses. A fast process could read an old entry before its new partner writes. So each
rendezvous gets a new name, and all its entries are stored under that name.
"""

import secrets
import time

import torch.distributed as dist

_POLL = 0.05  # seconds


def meet(store: dist.Store, rank: int, count: int, patience: float) -> str:
    """Return the name of this rendezvous, once all `count` processes have arrived.

    Rank 0 chooses a new name. Every other rank answers the name that it reads with a random word;
    the name is valid if rank 0 repeats the word. Raises `RuntimeError` after `patience` seconds, or
    after the store's own time limit.
    """
    word = secrets.token_hex(8)
    if rank == 0:
        store.set("meeting", word)
        for other in range(1, count):
            store.set(f"{word}/heard/{other}", store.get(f"{word}/answer/{other}"))
        return word
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        name = store.get("meeting").decode()
        store.set(f"{name}/answer/{rank}", word)
        heard = f"{name}/heard/{rank}"
        if store.check([heard]) and store.get(heard).decode() == word:
            return name
        time.sleep(_POLL)
    raise RuntimeError(f"learner {rank} did not meet learner 0 within {patience:.0f} seconds")
