"""A run's records together: what a new run, a resumed run and a failed start leave on disk."""

import errno

import pytest

from fastweights.records.checkpoints import CheckpointError
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import RunFolder, RunFolderError, read_meta
from fastweights.records.run_records import RunRecords
from tests.records.test_tensorboard import scalars


def row(step, loss):
    return {"step": step, "total_loss": loss}


def new(tmp_path, **given):
    return RunRecords(RunFolder.create(tmp_path, "a", {}), **given)


def test_a_new_run_has_its_files_before_it_begins(tmp_path):
    records = new(tmp_path, beside={"words.json": b"[]"})
    assert records.newest() is None
    records.begin(0, {"weights": 1})
    assert (tmp_path / "a" / "words.json").read_bytes() == b"[]"
    found = records.newest()
    assert (found.payload["weights"], found.payload["step"]) == (1, 0)
    records.log(row(10, 3.0))
    records.finish()
    assert read_meta(tmp_path / "a")["successful"] is True
    assert read_logs(tmp_path / "a")["total_loss"] == [3.0]
    assert scalars(tmp_path / "a" / "tensorboard")["loss/total"] == [(10, 3.0)]


def test_a_resumed_run_forgets_what_it_logged_beyond_its_checkpoint(tmp_path):
    records = new(tmp_path)
    records.begin(0, {"weights": 1})
    for step in (10, 20, 30):
        records.log(row(step, 1.0))
    records.checkpoints.save({"weights": 2}, 20)
    records.close()
    again = RunRecords(RunFolder.open(tmp_path / "a"))
    again.begin(again.newest().payload["step"], None)
    again.log(row(30, 2.0))
    again.finish(successful=False)
    assert read_logs(tmp_path / "a")["total_loss"] == [1.0, 1.0, 2.0]
    curve = scalars(tmp_path / "a" / "tensorboard")["loss/total"]
    assert curve == [(10, 1.0), (20, 1.0), (30, 2.0)]
    assert read_meta(tmp_path / "a")["successful"] is False


def test_a_run_that_keeps_no_checkpoints_begins_without_one(tmp_path):
    records = new(tmp_path, beside={"words.json": b"[]"})
    records.begin(0, None)
    records.close()
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert "checkpoints" not in names and "words.json" not in names and "logs.csv" in names


def test_a_start_that_fails_leaves_no_new_run_and_frees_its_name(tmp_path, monkeypatch):
    def full(path, *given):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    records = new(tmp_path, beside={"words.json": b"[]"})
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.records.checkpoints.write_bytes", full)
        with pytest.raises(CheckpointError, match="No space left"):
            records.begin(0, {"weights": 1})
    assert list(tmp_path.iterdir()) == []
    new(tmp_path).close()


def test_a_start_that_fails_leaves_a_resumed_run(tmp_path, monkeypatch):
    records = new(tmp_path)
    records.begin(0, None)
    records.close()

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    again = RunRecords(RunFolder.open(tmp_path / "a"))
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.records.log_table.LogTable.rewind", full)
        with pytest.raises(RunFolderError, match="No space left"):
            again.begin(0, {"weights": 1})
    RunFolder.open(tmp_path / "a").close()  # released


def test_the_folder_is_free_after_close_also_twice(tmp_path):
    records = new(tmp_path)
    records.begin(0, {"weights": 1})
    records.close()
    records.close()
    RunFolder.open(tmp_path / "a").close()
