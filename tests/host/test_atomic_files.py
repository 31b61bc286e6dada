"""Files are complete or absent, whoever else writes them at the same time."""

import os
from concurrent.futures import ThreadPoolExecutor

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
