"""Expected failures print one line and exit with code 2; bugs keep their tracebacks."""

import errno
import json

import numpy as np
import pytest
import torch

from fastweights.host.errors import UserError, one_line_errors, user_input, without_new_folders
from fastweights.records.checkpoints import CheckpointError
from fastweights.records.run_folder import RunFolderError


def fail_with(error: BaseException):
    @one_line_errors
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    "error",
    [
        UserError("no game 'Qbret':\n  did you mean 'Qbert'?"),
        CheckpointError("damaged"),
        RunFolderError("in use"),
        OSError(errno.ENOSPC, "No space left on device", "runs/x"),
        PermissionError(errno.EACCES, "Permission denied", "runs/x"),
        OSError(errno.EROFS, "Read-only file system"),
    ],
)
def test_expected_failures_are_one_line(capsys, error):
    with pytest.raises(SystemExit) as caught:
        fail_with(error)()
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1


def test_a_system_failure_names_the_file(capsys):
    with pytest.raises(SystemExit):
        fail_with(OSError(errno.ENOSPC, "No space left on device", "runs/x"))()
    assert capsys.readouterr().err == "error: runs/x: No space left on device\n"


def _allocate_on_a_cpu() -> None:
    torch.empty(2**60)


def _allocate_by_numpy() -> None:
    np.empty(2**50)


def _allocate_on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 97.00 GiB. GPU 0 has")


@pytest.mark.parametrize(
    ("allocate", "size"),
    [
        (_allocate_on_a_cpu, "4611686018427387904 bytes"),
        (_allocate_by_numpy, "8.00 PiB"),
        (_allocate_on_a_gpu, "97.00 GiB"),
    ],
)
def test_too_little_memory_is_one_line(allocate, size, capsys):
    with pytest.raises(SystemExit, match="2"):
        one_line_errors(allocate)()
    said = capsys.readouterr().err
    assert said.startswith(f"error: out of memory ({size} more needed): choose a smaller core")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "bug",
    [
        *(ValueError("a"), TypeError("a"), AssertionError("a"), RuntimeError("a"), KeyError("a")),
        *(FileNotFoundError(errno.ENOENT, "a"), BrokenPipeError(errno.EPIPE, "a")),
    ],
)
def test_bugs_keep_their_traceback(bug):
    with pytest.raises(type(bug)) as caught:
        fail_with(bug)()
    assert caught.value is bug


def test_ctrl_c_has_the_shells_exit_code():
    with pytest.raises(SystemExit) as caught:
        fail_with(KeyboardInterrupt())()
    assert caught.value.code == 130


def test_results_pass_through():
    assert one_line_errors(lambda a, b=1: a + b)(1, b=2) == 3


def test_user_input_vouches_for_value_errors_only():
    with pytest.raises(UserError, match="unknown core"), user_input():
        raise ValueError("unknown core 'x'; known: lstm, rdn")
    with pytest.raises(CheckpointError), user_input():
        raise CheckpointError("kept as it is")
    with pytest.raises(TypeError), user_input():
        raise TypeError
    with pytest.raises(UserError), user_input():
        json.loads("{")


@pytest.mark.parametrize("failure", [ValueError("a"), KeyboardInterrupt()], ids=repr)
def test_a_failure_leaves_no_folder_that_was_not_there(failure, tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(type(failure)), without_new_folders(tmp_path / "old" / "new" / "newer"):
        (tmp_path / "old" / "new" / "newer").mkdir(parents=True)
        raise failure
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


@pytest.mark.parametrize("made", [[], ["new"]], ids=["nothing", "one of two"])
def test_a_failure_before_all_folders_were_made_is_the_one_that_is_raised(made, tmp_path):
    with pytest.raises(ValueError, match="a"), without_new_folders(tmp_path / "new" / "newer"):
        for name in made:
            (tmp_path / name).mkdir()
        raise ValueError("a")
    assert not list(tmp_path.iterdir())


def test_a_failure_keeps_folders_with_files_and_folders_from_before(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(ValueError, match="a"), without_new_folders(tmp_path / "old"):
        raise ValueError("a")
    with pytest.raises(ValueError, match="a"), without_new_folders(tmp_path / "new" / "newer"):
        (tmp_path / "new" / "newer").mkdir(parents=True)
        (tmp_path / "new" / "file").touch()
        raise ValueError("a")
    assert {path.name for path in tmp_path.rglob("*")} == {"old", "new", "file"}


def test_folders_of_a_block_that_ends_well_stay(tmp_path):
    with without_new_folders(tmp_path / "new"):
        (tmp_path / "new").mkdir()
    assert (tmp_path / "new").is_dir()
