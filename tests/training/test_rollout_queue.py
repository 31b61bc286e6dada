"""The bounded queue: who may start, in what order, and how every wait ends."""

import threading
import time

import pytest
import torch

from fastweights.agents.actor import Collected
from fastweights.agents.rollout import Rollout
from fastweights.host.stages import Stages
from fastweights.training.schedules.experience import Experience, batches
from fastweights.training.schedules.rollout_queue import Closed, QueuedSource, RolloutQueue


def numbered(first: int, columns: int, version: int = 0) -> Experience:
    """Return a rollout of one step whose actions are first, first + 1, ..."""
    numbers = torch.arange(first, first + columns)
    rows = torch.stack([numbers, numbers])
    rollout = Rollout(
        frame=rows[..., None].float(),
        reward=rows.float(),
        is_first=rows < 0,
        last_action=rows,
        action=rows[:1],
        policy_logits=rows[:1, :, None].float(),
        cut_value=rows[:1].float(),
        value=rows.float(),
        initial_state=(numbers[:, None].float(), (numbers[:, None].float(),)),
    )
    return Experience(Collected(rollout, [], []), version)


def never() -> None:
    """A stop request that never comes."""


def in_thread(function) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_first_come_first_served_and_no_more_than_the_slots():
    queue, begun = RolloutQueue(2), []

    def collect(name: int) -> None:
        queue.reserve()
        begun.append(name)

    threads = []
    for name in range(5):
        threads.append(in_thread(lambda name=name: collect(name)))
        while queue._begun <= name:  # threads queue up in this order
            time.sleep(0.001)
    for released, expected in ((0, 2), (1, 3), (1, 4), (1, 5)):
        queue.release(released)
        for thread in threads[:expected]:
            thread.join(5)
        time.sleep(0.01)
        assert sorted(begun) == list(range(expected))


def test_what_was_put_is_taken_in_order():
    queue = RolloutQueue(3)
    put = [numbered(i, 1) for i in range(3)]
    for experience in put:
        queue.reserve()
        queue.put(experience)
    assert len(queue) == 3
    assert [queue.take(never) for _ in put] == put


def test_closing_ends_every_wait():
    queue, ended = RolloutQueue(1), []
    queue.reserve()

    def waits(wait) -> None:
        with pytest.raises(Closed):
            wait()
        ended.append(wait)

    threads = [in_thread(lambda w=w: waits(w)) for w in (queue.reserve, lambda: queue.take(never))]
    time.sleep(0.05)
    queue.close()
    for thread in threads:
        thread.join(5)
    assert len(ended) == 2


def test_the_first_error_reaches_the_learner_before_any_rollout():
    queue = RolloutQueue(1)
    queue.put(numbered(0, 1))
    queue.close(KeyError("first"))
    queue.close(ValueError("second"))
    with pytest.raises(KeyError, match="first"):
        queue.take(never)


def test_a_wait_for_rollouts_looks_out_for_signals():
    def interrupted() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        RolloutQueue(1).take(interrupted)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 5, 4), (12,), (1,) * 12])
def test_batches_hold_every_column_once_and_in_order(sizes, batch_size):
    firsts = [sum(sizes[:i]) for i in range(len(sizes))]
    given = [numbered(*pair, version=i) for i, pair in enumerate(zip(firsts, sizes, strict=True))]
    cut = list(batches(given, batch_size))
    assert len(cut) == 12 // batch_size
    assert sum(batch.used_up for batch in cut) == len(sizes)
    for i, batch in enumerate(cut):
        numbers = torch.arange(i * batch_size, (i + 1) * batch_size)
        rollout = batch.rollout
        assert torch.equal(rollout.action[0], numbers)
        assert torch.equal(rollout.frame[1, :, 0], numbers.float())
        outer, (inner,) = rollout.initial_state
        assert torch.equal(outer[:, 0], numbers.float()) and torch.equal(inner, outer)
        assert batch.version == max(j for j, first in enumerate(firsts) if first <= numbers[0])


def test_a_batch_is_as_old_as_its_oldest_weights():
    """Actors overtake each other, so a later rollout may come from earlier weights."""
    given = [numbered(0, 2, version=5), numbered(2, 2, version=3), numbered(4, 2, version=7)]
    assert [batch.version for batch in batches(given, 3)] == [3, 3]


def test_what_goes_wrong_with_a_rollout_ends_the_learner_s_next_stage():
    stages = Stages("learner")
    source = QueuedSource(2, stages)
    with stages("gradient"):
        source.queue.close(KeyError("actor"))
    with stages("log"):  # of an update that is complete
        pass
    with pytest.raises(KeyError, match="actor"), stages("gradient"):
        pytest.fail("this stage must not start, because the run has ended")
