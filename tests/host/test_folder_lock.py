"""Locks on folders: one holder at a time; removal deletes the file and releases the lock."""

import os

import pytest

from fastweights.host.folder_lock import FolderLock


def test_one_lock_at_a_time_names_its_holder(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(BlockingIOError, match=f"{os.getpid()} on "):
        FolderLock(tmp_path)
    lock.release()
    assert (tmp_path / ".lock").exists()
    FolderLock(tmp_path).release()


def test_a_removed_lock_leaves_no_file_and_is_free(tmp_path):
    """A second name of the file tells the release from the removal."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    lock = FolderLock(folder)
    (other / ".lock").hardlink_to(folder / ".lock")
    with pytest.raises(BlockingIOError):
        FolderLock(other)
    lock.remove()
    FolderLock(other).release()
    assert not list(folder.iterdir())


def test_a_file_that_is_gone_already_is_no_error(tmp_path):
    lock = FolderLock(tmp_path)
    (tmp_path / ".lock").unlink()
    lock.remove()
    lock.remove()
    FolderLock(tmp_path).release()
