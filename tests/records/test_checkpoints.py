"""A checkpoint file is whole or absent, and opening it runs no code."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from forks import Program

from fastweights.host import atomic_files
from fastweights.records.checkpoints import (
    CheckpointError,
    fitting,
    load_checkpoint,
    read_plain,
    save_checkpoint,
)


def payload(value: float = 1.0) -> dict:
    return {
        "model_state_dict": OrderedDict(weight=torch.full((50, 3), value)),
        "optimizer_state_dict": {"state": {0: {"square_avg": torch.zeros(3)}}, "param_groups": []},
        "flags": {"env": "Qbert", "betas": [0.9, None, True]},
        "stats": {"step": 12},
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    line = str(caught.value)
    assert "\n" not in line and str(path) in line
    return line


def test_what_is_saved_loads_again_and_with_plain_torch(tmp_path):
    path = tmp_path / "new" / "a.pt"
    save_checkpoint(payload(), path)
    for loaded in (load_checkpoint(path), torch.load(path, weights_only=True)):
        assert loaded["format"] == "fastweights-checkpoint" and loaded["version"] == 1
        assert loaded["flags"] == payload()["flags"]
        torch.testing.assert_close(loaded["model_state_dict"]["weight"], torch.ones(50, 3))
    assert names(path.parent) == ["a.pt"]


class Pair(NamedTuple):
    left: int


@pytest.mark.parametrize("value", [np.float64(1), np.int64(1), np.zeros(2), Pair(1), {1.5: 2}, len])
def test_values_that_could_not_be_loaded_are_not_saved(tmp_path, value):
    with pytest.raises(TypeError, match=r"payload\['stats'\]\['mean'\]\[1\]"):
        save_checkpoint({"stats": {"mean": [1.0, value]}}, tmp_path / "a.pt")
    assert names(tmp_path) == []


def test_what_a_gpu_has_no_memory_for_is_not_called_another_version(tmp_path):
    with pytest.raises(torch.OutOfMemoryError), fitting(tmp_path):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(CheckpointError, match="does not fit this version"), fitting(tmp_path):
        raise RuntimeError("size mismatch")


def test_truncated_at_any_byte_is_refused(tmp_path):
    whole, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    save_checkpoint(payload(), whole)
    content = whole.read_bytes()
    for length in {0, 1, 3, 4, 5, 100, len(content) - 1, *range(0, len(content), 97)}:
        cut.write_bytes(content[:length])
        assert "empty" in refusal(cut) if length == 0 else "truncated" in refusal(cut)


def test_a_flipped_bit_in_a_weight_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    save_checkpoint(payload(), path)
    content = bytearray(path.read_bytes())
    weight = content.find(np.ones(10, np.float32).tobytes())
    content[weight + 100] ^= 1
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)  # torch does not notice
    assert "checksum" in refusal(path)


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


def test_a_hostile_file_runs_nothing(tmp_path):
    side_effect, zipped, bare = tmp_path / "owned", tmp_path / "zip.pt", tmp_path / "bare.pt"
    torch.save(payload() | {"trap": Hostile(side_effect)}, zipped)
    bare.write_bytes(pickle.dumps(Hostile(side_effect)))
    assert "Python objects" in refusal(zipped)
    assert "not a fastweights checkpoint" in refusal(bare)
    assert not side_effect.exists()
    torch.load(zipped, weights_only=False)
    assert side_effect.exists(), "unpickling without protection must make the file"


def test_foreign_files_say_what_they_are(tmp_path):
    text, legacy = tmp_path / "notes.txt", tmp_path / "legacy.pt"
    torchbeast, weights = tmp_path / "model.tar", tmp_path / "weights.pt"
    text.write_text("hello")
    torch.save({"model_state_dict": {}}, legacy, _use_new_zipfile_serialization=False)
    torch.save({"model_state_dict": {}, "stats": {"return": np.float64(3)}}, torchbeast)
    torch.save({"weight": torch.zeros(2)}, weights)
    torch.save([1, 2], tmp_path / "list.pt")
    assert "not an archive" in refusal(text)
    assert "another program" in refusal(legacy)
    assert "another program" in refusal(torchbeast)
    assert "another program" in refusal(weights)
    assert "another program" in refusal(tmp_path / "list.pt")
    assert "is a folder" in refusal(tmp_path)
    assert "no checkpoint at" in refusal(tmp_path / "nowhere" / "a.pt")
    assert "cannot read" in refusal(text / "a.pt")


def test_other_programs_files_are_read_as_plain_values(tmp_path):
    """TorchBeast stores NumPy numbers in its statistics and once wrote torch's older format."""
    values = {"stats": {"returns": (np.float32(3), np.float64(0.5), np.int64(7))}, "w": None}
    torch.save(values, tmp_path / "model.tar")
    torch.save(values, tmp_path / "old.tar", _use_new_zipfile_serialization=False)
    assert read_plain(tmp_path / "model.tar") == read_plain(tmp_path / "old.tar") == values
    trap = tmp_path / "owned"
    torch.save({"a": Hostile(trap)}, tmp_path / "o.tar", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="not a fastweights checkpoint"):
        read_plain(tmp_path / "o.tar")
    assert not trap.exists()


def test_a_small_file_does_not_fill_the_memory(tmp_path):
    path, size = tmp_path / "a.pt", 2**36
    hostile = {
        "expanded": torch.zeros(1).expand(size),
        "sparse": torch.sparse_coo_tensor(
            torch.zeros(1, 1, dtype=torch.int64), [1.0], (size,), check_invariants=True
        ),
        "meta": torch.zeros(size, device="meta"),
        "many": [torch.zeros(1).expand(2**20) for _ in range(20)],
    }
    for name, tensors in hostile.items():
        torch.save(payload() | {"optimizer": {"state": [(tensors,)]}}, path)
        assert path.stat().st_size < 10_000
        assert "more elements than the file stores" in refusal(path), name


def test_tensors_that_share_their_data_do_not_fill_the_memory(tmp_path):
    path, shared = tmp_path / "a.pt", torch.zeros(2**22)
    save_checkpoint(payload() | {"tied": [shared, shared[:]]}, path)
    assert len(load_checkpoint(path)["tied"]) == 2
    torch.save(payload() | {"shared": [shared[:] for _ in range(4)]}, path)
    assert "more elements than the file stores" in refusal(path)


def test_a_state_may_be_expanded(tmp_path):
    state = torch.ones(3).expand(1000, 3)
    save_checkpoint(payload() | {"memory": [state]}, tmp_path / "a.pt")
    assert torch.equal(load_checkpoint(tmp_path / "a.pt")["memory"][0], state)


def test_another_version_is_named(tmp_path):
    save_checkpoint(payload() | {"version": 7}, tmp_path / "a.pt")
    assert "version 7" in refusal(tmp_path / "a.pt")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    save_checkpoint(payload(1.0), path)
    # The partial file is a link to a device that answers ENOSPC, as a full disk does.
    partial = tmp_path / ".partial-7.a.pt"
    partial.symlink_to("/dev/full")
    monkeypatch.setattr(atomic_files, "partial_name", lambda _: partial)
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        save_checkpoint(payload(2.0), path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert load_checkpoint(path)["model_state_dict"]["weight"][0, 0] == 1
    assert names(tmp_path) == ["a.pt"]


LIMITED = """
import resource, sys, torch
from pathlib import Path
from fastweights.records import CheckpointError, save_checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save_checkpoint({"weights": torch.zeros(100_000)}, Path(sys.argv[1]))
except CheckpointError as error:
    print(error)
"""


def test_a_write_that_stops_half_way_leaves_no_trace(tmp_path):
    path = tmp_path / "a.pt"
    save_checkpoint(payload(), path)
    done = Program(LIMITED, path).end()
    assert "File too large" in done.stdout and done.stderr == ""
    assert load_checkpoint(path)["stats"] == {"step": 12}
    assert names(tmp_path) == ["a.pt"]


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        save_checkpoint(payload(), tmp_path / "file" / "a.pt")


def test_ctrl_c_while_writing_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    save_checkpoint(payload(1.0), path)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(payload(2.0), path)
    monkeypatch.undo()
    assert load_checkpoint(path)["model_state_dict"]["weight"][0, 0] == 1
    assert names(tmp_path) == ["a.pt"]
