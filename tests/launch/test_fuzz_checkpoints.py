"""Random changes of a checkpoint: it works, or the command prints one line and exits with 2.

There is no other exception, no file outside the run folder, and no code from the file runs.
"""

import io
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import (
    ACTIONS,
    GONE,
    OPTIONS,
    SHAPE,
    canary_of,
    changed,
    command,
    paths,
    payload,
    sandbox,
    searched,
    tensors,
    values,
)
from hypothesis import strategies as st

from fastweights.agents.learner import Learner
from fastweights.agents.network import Network
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.checkpoints import fitting, load_checkpoint, read_plain, save_checkpoint
from fastweights.records.metrics import Metrics
from fastweights.training.saved_agent import open_agent, take_weights, unpack


@cache
def checkpoint() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(payload(), Path(folder) / "a.pt")
        return (Path(folder) / "a.pt").read_bytes()


def open_everything(run: Path, content: bytes) -> None:
    """Open a file with every reader of checkpoints, then resume a run from it."""
    (run / "checkpoints").mkdir(exist_ok=True)
    path = run / "checkpoints" / "step_000000000040.pt"
    path.write_bytes(content)
    command(lambda: load_checkpoint(path))
    command(lambda: read_plain(path))
    command(lambda: CheckpointFolder(run).latest())
    command(lambda: CheckpointFolder(run).best_score)
    command(lambda: restored(open_agent(run).payload))
    beginning = replace(OPTIONS, init_from=path)
    command(lambda: take_weights(Network(OPTIONS.network(SHAPE, ACTIONS)), beginning))


def restored(content: dict[str, Any]) -> None:
    learner = Learner(Network(OPTIONS.network(SHAPE, ACTIONS)), OPTIONS.learner)
    metrics = Metrics(lambda row: None)
    with fitting(Path("checkpoint")):
        unpack(content, learner)
        metrics.load_state_dict(content["stats"]["metrics"])
    for weight in learner.network.parameters():
        weight.grad = torch.ones_like(weight)
    learner.optimizer.step()
    metrics.log({"step": learner.steps})


def _checkpoint_bytes(data):
    content = bytearray(checkpoint())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with sandbox() as run:
        open_everything(run, bytes(content[: data.draw(st.integers(0, len(content)))]))


def repacked(content: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """Return a checkpoint's archive with changed members and correct checksums."""
    old, new = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            member = change(name, old.read(name))
            if member is not None:
                archive.writestr(name, member)
    return new.getvalue()


def _checkpoint_members(data):
    with sandbox() as run:
        names = [
            name.split("/", 1)[1] for name in zipfile.ZipFile(io.BytesIO(checkpoint())).namelist()
        ]
        which = data.draw(st.sampled_from(["data.pkl", *names]))
        how = data.draw(
            st.sampled_from(["gone", "canary", "bytes", "shorter", "longer", "flipped"])
        )
        some = data.draw(st.binary(max_size=40))

        def change(name: str, member: bytes) -> bytes | None:
            if not name.endswith(which):
                return member
            where = data.draw(st.integers(0, max(0, len(member) - 1)))
            return {
                "gone": None,
                "canary": pickle.dumps({"trap": canary_of(run)}, protocol=2),
                "bytes": some,
                "shorter": member[:where],
                "longer": member + some,
                "flipped": member[:where] + some + member[where + len(some) :],
            }[how]

        open_everything(run, repacked(checkpoint(), change))


def _checkpoint_values(data):
    content = payload()
    way = data.draw(st.sampled_from(paths(content)))
    value = data.draw(st.one_of(values, tensors))
    with sandbox() as run:
        if data.draw(st.booleans()) and value is not GONE:
            value = [value, canary_of(run)] if data.draw(st.booleans()) else value
        written = io.BytesIO()
        head = {"format": "fastweights-checkpoint", "version": 1}
        torch.save(head | changed(content, way, value), written)
        open_everything(run, written.getvalue())


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (["stats", "metrics", "game_count"], float("inf")),
        (["stats", "metrics", "games", 0, 1], float("inf")),
        (["step"], "many"),
        (["step"], GONE),
        (["scheduler_state_dict", "refused_in_a_row"], -1),
    ],
    ids=["games", "steps of a game", "a word", "none", "refused"],
)
def test_a_count_that_is_none_is_refused(way, value):
    content = changed(payload(), way, value)
    written = io.BytesIO()
    torch.save({"format": "fastweights-checkpoint", "version": 1} | content, written)
    with sandbox() as run:
        open_everything(run, written.getvalue())
        assert command(lambda: restored(open_agent(run).payload)) == 2


test_checkpoint_bytes, test_checkpoint_bytes_longer = searched(
    _checkpoint_bytes, 15, 200, st.data()
)
test_checkpoint_members, test_checkpoint_members_longer = searched(
    _checkpoint_members, 15, 200, st.data()
)
test_checkpoint_values, test_checkpoint_values_longer = searched(
    _checkpoint_values, 25, 250, st.data()
)
