"""Learners find each other through a store that other learners have used before."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from fastweights.training.rendezvous import meet


@pytest.fixture
def store() -> dist.Store:
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=20))
    return store


def together(store: dist.Store, count: int) -> str:
    with ThreadPoolExecutor(count) as pool:
        names = {*pool.map(lambda rank: meet(store, rank, count, 20), reversed(range(count)))}
    (name,) = names
    return name


def test_all_learners_get_one_name_and_each_meeting_a_new_one(store):
    assert len({together(store, count) for count in (1, 2, 2, 3)}) == 4


def test_the_first_learner_waits_for_its_new_partner(store):
    old, found = together(store, 2), []
    early = threading.Thread(target=lambda: found.append(meet(store, 1, 2, 20)))
    early.start()
    early.join(0.5)
    assert not found  # although name, answer and echo of the old meeting are there
    new = meet(store, 0, 2, 20)
    early.join()
    assert found == [new] and new != old


def test_an_unfinished_meeting_of_a_killed_process_is_forgotten(store):
    store.set("meeting", "abandoned")
    store.set("abandoned/answer/1", "somebody")
    store.set("abandoned/heard/1", "somebody")
    assert together(store, 2) != "abandoned"


def test_waiting_ends_with_a_timeout(store):
    store.set("meeting", "abandoned")
    with pytest.raises(RuntimeError, match="learner 1 did not meet learner 0 within 0 seconds"):
        meet(store, 1, 2, 0.2)
