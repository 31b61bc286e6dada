"""docs/a_frames_life.md: a frame is read in the rooms that the page names."""

import sys

import pytest
from small_runs import GROUPS, train

from fastweights.agents import Rollout
from fastweights.envs import TimeStep


@pytest.fixture
def readers(monkeypatch):
    """Record the modules that read `frame` of a row or of a rollout."""
    seen = set()
    for record in (TimeStep, Rollout):
        assert record._fields[0] == "frame"

        def read(self):
            seen.add(sys._getframe(1).f_globals["__name__"])
            return self[0]

        monkeypatch.setattr(record, "frame", property(read))
    return seen


@pytest.mark.parametrize("schedule", [(), GROUPS], ids=["lockstep", "asynchronous"])
def test_a_frame_passes_each_room_once(schedule, readers, tmp_path):
    """In `agents/`, that is: between actor and learner, training carries rollouts unread."""
    assert train(tmp_path, "run", *schedule, "--total-steps", 40, "--evaluate-episodes", 0) == 0
    own = {name for name in readers if name.startswith("fastweights.")}  # libraries may look, too
    assert own == {"fastweights.agents.actor", "fastweights.agents.learner"}
