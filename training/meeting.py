"""How the learners of a run find each other, and nobody from before.

torchrun keeps one store for all its restarts, and in it what killed processes left there: where
they listened, say. A process that is quicker than its new partner would read that, and knock at a
closed door; so each meeting gets a name, and everything said in it is filed under that name.
"""

import secrets
import time

import torch.distributed as dist

_POLL = 0.05  # seconds


def meet(store: dist.Store, rank: int, count: int, patience: float) -> str:
    """The name of this meeting, once all `count` processes are there; no earlier one had it.

    Rank 0 makes the name up. Another answers to the name it reads with a word of its own; the name
    is this meeting's if rank 0 repeats that word. Raises `RuntimeError` after `patience` seconds,
    or the store's own time limit.
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
    raise RuntimeError(f"learner {rank} did not meet the first one within {patience:.0f} seconds")
