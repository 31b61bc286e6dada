"""docs/a_frames_life.md: a frame is read in the rooms that the page names."""

import sys
from pathlib import Path

import pytest
from small_runs import GROUPS, train

from fastweights.agents import Rollout
from fastweights.envs import TimeStep

ROOT = Path(__file__).parents[2]
ROOMS = {path.name for path in (ROOT / "fastweights").iterdir() if path.is_symlink()}


@pytest.fixture
def readers(monkeypatch):
    """Record the files that read `frame` of a row or of a rollout."""
    seen = []
    for record in (TimeStep, Rollout):
        assert record._fields[0] == "frame"

        def read(self):
            seen.append(Path(sys._getframe(1).f_code.co_filename).resolve())
            return self[0]

        monkeypatch.setattr(record, "frame", property(read))
    return seen


@pytest.mark.parametrize("schedule", [(), GROUPS], ids=["lockstep", "asynchronous"])
def test_a_frame_passes_each_room_once(schedule, readers, tmp_path):
    """In `agents/`, that is: between actor and learner, training carries rollouts unread."""
    assert train(tmp_path, "run", *schedule, "--total-steps", 40, "--evaluate-episodes", 0) == 0
    own = [path.relative_to(ROOT) for path in readers if path.is_relative_to(ROOT)]
    files = {path.as_posix() for path in own if path.parts[0] in ROOMS}  # libraries may look, too
    assert {"agents/actor.py", "agents/learner.py"} == files
