"""The benchmark of actors in other processes: the arithmetic of its figures."""

from dataclasses import replace

import pytest

from benchmarks import remote_actors
from benchmarks.remote_actors import PICTURE, rate_rows, rates, wire, wire_rows


def test_a_message_has_a_frame_a_step_and_one_stack(monkeypatch):
    whole = remote_actors._options
    few = {"num_envs": 4, "batch_size": 4}
    monkeypatch.setattr(remote_actors, "_options", lambda *which: replace(whole(*which), **few))
    found = wire("Qbert", "feedforward", rollouts=1)
    stacks = 4 * PICTURE / 64  # the whole stack of frames in row 0 of a rollout of 64 steps
    assert PICTURE + stacks < found["bytes_per_step"] < PICTURE + stacks + 100
    assert found["packed_bytes_per_step"] < PICTURE
    spared = found["bytes"] - found["packed_bytes"]
    pays = found["zlib_pays_below_bytes_per_second"]
    assert spared / pays == pytest.approx(found["pack"] + found["unpack"])
    assert wire_rows(found)[0][1] == "7,056"


def test_ray_s_share_is_of_the_same_round(monkeypatch):
    turns = {"lockstep": [100.0, 50.0], "asynchronous": [50.0, 100.0], "ray": [100.0, 50.0]}
    left = {remote_actors.KINDS[kind]: iter(rates) for kind, rates in turns.items()}
    monkeypatch.setattr(remote_actors, "_rate", lambda *what: next(left[what[-1]]))
    found = rates("Qbert", "rdn", updates=7, rounds=2)
    assert found["ray_share_of"] == {"lockstep": 1.0, "asynchronous": 1.25}
    assert (found["preset"], found["updates"], found["rates"]) == ("quick", 7, turns)
    rows = rate_rows(found)
    assert rows == [("lockstep", "75", "100%"), ("asynchronous", "75", "125%"), ("ray", "75", "")]
