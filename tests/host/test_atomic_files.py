"""Files are complete or absent, whoever else writes them at the same time."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastweights.host.atomic_files import write_bytes


def test_writers_of_one_file_do_not_meet(tmp_path):
    contents = [bytes([number]) * 10_000 for number in range(100)]
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda content: write_bytes(tmp_path / "file", content), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as readers:
        read = readers.submit((tmp_path / "pipe").read_bytes)
        write_bytes(tmp_path / "pipe", b"content")
        assert read.result(60) == b"content"
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_takes_nothing_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_bytes(Path("/dev/full"), b"content")


def test_a_file_behind_standard_output_keeps_its_content(tmp_path, monkeypatch):
    monkeypatch.setattr("fastweights.host.atomic_files.is_device", lambda path: True)
    (tmp_path / "out").write_bytes(b"printed before\n")
    write_bytes(tmp_path / "out", b"content\n")
    assert (tmp_path / "out").read_bytes() == b"printed before\ncontent\n"
