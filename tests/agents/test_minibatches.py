"""Minibatches: each pass deals out every stream once, for any number of learners."""

from itertools import islice

import pytest
import torch
from test_learner import network, rollout_of

from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.minibatches import deals

ALONE = {"share": 0, "of": 1, "seed": 1, "steps": 0}


def passes(count: int, *given, **named) -> list[list[list[int]]]:
    return [[part.tolist() for part in dealt] for dealt in islice(deals(*given, **named), count)]


@pytest.mark.parametrize(("streams", "count"), [(16, 4), (6, 3), (4, 4), (8, 1), (2, 2)])
def test_every_pass_gives_each_stream_to_one_minibatch(streams, count):
    for dealt in passes(20, streams, count, **ALONE):
        assert [len(part) for part in dealt] == [streams // count] * count
        assert sorted(stream for part in dealt for stream in part) == list(range(streams))


def test_draws_depend_on_seed_and_steps_and_pass_alone():
    one = passes(3, 16, 4, **ALONE)
    assert one == passes(3, 16, 4, **ALONE)
    assert one[0] != one[1] != one[2]
    assert one != passes(3, 16, 4, **ALONE | {"seed": 2})
    assert one != passes(3, 16, 4, **ALONE | {"steps": 1024})
    torch.rand(1)  # must not affect the minibatches
    assert one == passes(3, 16, 4, **ALONE)


@pytest.mark.parametrize("learners", [2, 4])
def test_learners_together_have_the_minibatches_of_one(learners):
    share = 16 // learners
    whole = passes(3, 16, 2, **ALONE)
    parts = [
        passes(3, share, 2, **ALONE | {"share": rank, "of": learners}) for rank in range(learners)
    ]
    for number, dealt in enumerate(whole):
        for minibatch, streams in enumerate(dealt):
            together = [
                rank * share + stream
                for rank in range(learners)
                for stream in parts[rank][number][minibatch]
            ]
            assert together == streams


def test_each_stream_comes_to_each_minibatch_equally_often():
    """Each of a block's streams comes to each minibatch about equally often."""
    firsts = [dealt[0][0] for dealt in passes(1200, 4, 4, **ALONE)]
    assert all(250 < firsts.count(stream) < 350 for stream in range(4))


def test_streams_that_cannot_be_shared_out_are_refused():
    net = network("feedforward")
    learner = Learner(net, LearnerConfig(minibatches=4))
    with pytest.raises(ValueError, match="6 streams cannot be divided into 4 minibatches"):
        learner.update(rollout_of(net))
