"""Damaged metas, names, logs and evaluations raise one error line."""

import json

import pytest

from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.host.errors import UserError
from fastweights.records.log_table import LogTable, read_logs
from fastweights.records.run_folder import RunFolder, RunFolderError, read_meta
from tests.evaluation.test_evaluation_file import PLAIN, evaluation


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "[]", "7", '{"args": []}'])
def test_a_meta_of_any_depth_or_kind_is_damaged(tmp_path, content):
    (tmp_path / "meta.json").write_text(content)
    with pytest.raises(RunFolderError, match="is damaged"):
        read_meta(tmp_path)


@pytest.mark.parametrize("xpid", ["a\nb", "a\0b", "a\x1b[2J", "../x", "/x"])
def test_an_xpid_has_no_control_characters_and_no_folders(tmp_path, xpid):
    with pytest.raises(RunFolderError, match="cannot name a folder"):
        RunFolder.create(tmp_path, xpid, {})
    assert not any(tmp_path.iterdir())


def test_a_log_that_is_no_table_is_a_line(tmp_path):
    (tmp_path / "logs.csv").write_bytes(b"# \0\n\0\n")
    with pytest.raises(UserError, match="not a log table"):
        read_logs(tmp_path)


def test_odd_cells_of_a_log_are_text_or_left_out(tmp_path):
    deep = "(" * 300 + ")" * 300
    rows = ["²,1,()", f"0,2,{deep}", "1,3,(1.5;)", '2,4,"(1, 2.5)"', "3,5,(__import__)"]
    (tmp_path / "logs.csv").write_text("\n".join(["# _tick,step,x", *rows, ""]))
    logs = read_logs(tmp_path)
    assert logs["step"] == [2, 3, 4, 5]
    assert logs["x"] == [deep, "(1.5;)", (1, 2.5), "(__import__)"]


def test_a_log_without_steps_is_not_rewound(tmp_path):
    (tmp_path / "logs.csv").write_text("# _tick,x\n0,1\n")
    with pytest.raises(UserError, match="no column `step`"):
        LogTable(tmp_path).rewind(3)


@pytest.mark.parametrize(
    "edit",
    [
        {"repeats": 3},
        {"repeats": 10**9},
        {"repeats": 0},
        {"episodes": []},
        {"agent_steps": "7"},
        {"score_modulus": {}},
    ],
)
def test_an_evaluation_that_contradicts_itself_is_a_line(tmp_path, edit):
    kept = evaluation(*PLAIN)
    path = tmp_path / "step_1.json"
    kept.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(UserError, match="not an evaluation of this program"):
        Evaluation.load(path)
