"""Files are complete or absent, whoever else writes them at the same time."""

from concurrent.futures import ThreadPoolExecutor

from fastweights.host.atomic_files import write_bytes


def test_writers_of_one_file_do_not_meet(tmp_path):
    contents = [bytes([number]) * 10_000 for number in range(100)]
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda content: write_bytes(tmp_path / "file", content), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
