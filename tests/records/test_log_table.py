"""logs.csv has the format of TorchBeast's tools, whatever a killed process left."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastweights.host.errors import UserError
from fastweights.records.log_table import COLUMNS, LogTable, read_logs

ROOT = Path(__file__).parents[2]


def test_the_file_is_torchbeasts(tmp_path):
    table = LogTable(tmp_path)
    table.log({"step": 80, "episode_returns": (1.0, 2.5), "total_loss": np.float32(0.5)}, now=3.0)
    table.log({"step": 160})
    lines = (tmp_path / "logs.csv").read_bytes().split(b"\r\n")
    assert lines[0] == (
        b"# _tick,_time,step,episode_returns,mean_episode_return,mean_episode_step,"
        b"total_loss,pg_loss,baseline_loss,entropy_loss,learner_queue_size"
    )
    assert lines[1] == b'0,3.0,80,"(1.0, 2.5)",,,0.5,,,,'
    assert len(lines) == 4 and lines[3] == b""
    assert (tmp_path / "fields.csv").read_bytes() == lines[0][2:] + b"\r\n"


def test_new_columns_extend_the_first_line_and_the_history(tmp_path):
    table = LogTable(tmp_path)
    table.log({"step": 1})
    table.log({"step": 2, "entropy": 0.25, "lag": 3})
    with (tmp_path / "fields.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [[*COLUMNS], [*COLUMNS, "entropy", "lag"]]
    again = LogTable(tmp_path)
    again.log({"step": 3, "lag": None})
    logs = read_logs(tmp_path)
    assert logs["entropy"] == [None, 0.25, None] and logs["lag"] == [None, 3, None]
    assert logs["_tick"] == [0, 1, 2]


def test_a_column_that_could_not_be_added_is_added_later(tmp_path, monkeypatch):
    table = LogTable(tmp_path)
    table.log({"step": 1})
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.records.log_table.write_bytes", _no_space)
        with pytest.raises(OSError, match="full"):
            table.log({"step": 2, "entropy": 0.5})
    table.log({"step": 3, "entropy": 0.25})
    assert read_logs(tmp_path)["entropy"][-1] == 0.25


def _no_space(path: Path, content: bytes) -> None:
    raise OSError("the disk is full")


def test_values_survive_exactly(tmp_path):
    table = LogTable(tmp_path)
    values = [0.1 + 0.2, np.float64(1e-17), 7, np.int64(8), "a,\nb", None, float("nan")]
    for value in values:
        table.log({"step": 1, "value": value})
    read = read_logs(tmp_path / "logs.csv")["value"]
    assert read[:6] == [0.1 + 0.2, 1e-17, 7, 8, "a, b", None]
    assert read[6] != read[6] and isinstance(read[2], int)


def test_a_row_may_have_the_returns_of_any_number_of_games(tmp_path):
    returns = tuple(float(game) for game in range(30_000))
    LogTable(tmp_path).log({"step": 1, "episode_returns": returns})
    LogTable(tmp_path).log({"step": 2})
    assert read_logs(tmp_path)["episode_returns"][0] == returns


def test_cut_at_any_byte_the_table_goes_on(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    table = LogTable(whole)
    for step in (10, 20, 30):
        table.log({"step": step, "episode_returns": (1.0, 2.0), "note": "x"}, now=1.0)
    content = (whole / "logs.csv").read_bytes()
    for length in (*range(0, len(content), 3), len(content) - 1, len(content)):
        (whole / "logs.csv").write_bytes(content[:length])
        finished = max(0, content[:length].count(b"\n") - 1)
        assert read_logs(whole).get("step", []) == [10, 20, 30][:finished]
        LogTable(whole).log({"step": 40, "note": "y"}, now=2.0)
        logs = read_logs(whole)
        assert logs["step"] == [*[10, 20, 30][:finished], 40]
        assert logs["_tick"] == list(range(finished + 1))
        assert (whole / "logs.csv").read_bytes().count(b"\r\n") == finished + 2


def test_rewind_drops_what_is_beyond_and_continues_the_ticks(tmp_path):
    table = LogTable(tmp_path)
    for step in (10, 20, 30, 40):
        table.log({"step": step})
    table.rewind(20)
    table.log({"step": 25})
    assert read_logs(tmp_path)["step"] == [10, 20, 25]
    assert read_logs(tmp_path)["_tick"] == [0, 1, 2]
    table.rewind(0)
    table.log({"step": 5})
    assert read_logs(tmp_path)["_tick"] == [0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fields.csv", "logs.csv"]


def test_zeros_after_a_power_cut_are_left_out(tmp_path):
    LogTable(tmp_path).log({"step": 1})
    with (tmp_path / "logs.csv").open("ab") as file:
        file.write(b"\0" * 50 + b"\r\n")
    LogTable(tmp_path).log({"step": 2})
    assert read_logs(tmp_path)["step"] == [1, 2]


def test_torchbeasts_own_file_is_read(tmp_path):
    # Its first line ends with \n and names only the first tick's columns.
    (tmp_path / "logs.csv").write_bytes(
        b'# _tick,_time,step\n0,1.5,0\r\n1,2.5,80,"(3.0,)",3.0\r\n2,3.5,160,"(array([1.]),)",\r\n'
    )
    (tmp_path / "fields.csv").write_bytes(
        b"_tick,_time,step\r\n_tick,_time,step,episode_returns,mean_episode_return\r\n"
    )
    logs = read_logs(tmp_path)
    assert logs["step"] == [0, 80, 160]
    assert logs["episode_returns"] == [None, (3.0,), "(array([1.]),)"]
    assert logs["mean_episode_return"] == [None, 3.0, None]


def test_what_is_no_table_says_so(tmp_path):
    with pytest.raises(UserError, match="no logs at"):
        read_logs(tmp_path)
    (tmp_path / "logs.csv").write_text("hello\n")
    with pytest.raises(UserError, match="not a log table"):
        read_logs(tmp_path)


FULL_DISK = """
import resource, sys
from pathlib import Path
from fastweights.records.log_table import LogTable
table = LogTable(Path(sys.argv[1]))
table.log({"step": 1})
size = (Path(sys.argv[1]) / "logs.csv").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, resource.RLIM_INFINITY))
try:
    table.log({"step": 2})
except OSError as error:
    print(error.strerror, (Path(sys.argv[1]) / "logs.csv").stat().st_size == size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
table.log({"step": 3})
"""


def test_a_row_that_does_not_fit_leaves_no_trace(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("File too large True\n", "")
    assert read_logs(tmp_path)["step"] == [1, 3]
    assert read_logs(tmp_path)["_tick"] == [0, 1]
