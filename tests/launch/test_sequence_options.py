"""Presets are the paper's settings; options survive a file and a command line."""

import json
from dataclasses import replace

import pytest
import tyro

from cores import CORES
from launch.published_scores import algorithmic
from launch.sequence_options import PRESETS, SequenceOptions, differences, paper, preset, small
from launch.sequence_table import TableOptions, cells, flags, make_table, markdown
from tasks import TASKS, CodeExecution, ListOps

EVERY = [(name, core, task) for name in PRESETS for core in CORES for task in TASKS.values()]


@pytest.mark.parametrize(("name", "core", "task"), EVERY)
def test_every_preset_builds_every_core_and_survives_a_file(name, core, task):
    options = preset(name, core, task())
    assert options.build().output.out_features == len(task().answers)
    assert SequenceOptions.from_dict(options.to_dict()) == options


def test_the_papers_settings():
    task = CodeExecution(variables=5)
    delta_net, lstm = paper("delta_net", task), paper("lstm", task)
    parameters = [sum(p.numel() for p in o.build().parameters()) for o in (delta_net, lstm)]
    assert parameters == [3_184_154, 405_018]
    assert (delta_net.trainer.learning_rate, lstm.trainer.learning_rate) == (3e-4, 3e-3)
    assert (delta_net.trainer.clip, lstm.trainer.clip) == (0, 0.1)
    assert (delta_net.core_dropout, lstm.dropout) == (0.1, 0.1)
    assert {(o.trainer.batch_size, o.trainer.epochs) for o in (delta_net, lstm)} == {(64, 200)}
    assert delta_net.sizes == {"train": 10_000, "valid": 1_000, "test": 1_000}
    assert dict(paper("lt", task).core_options())["feature_map"] == "elu"


def test_small_is_the_same_question_with_shorter_sequences():
    for variables, fewer in ((5, 3), (3, 2), (1, 1)):
        task = CodeExecution(variables=variables)
        assert small("rdn", task).task == CodeExecution(variables=fewer, statements=25)
    assert small("rdn", ListOps(depth=10)).task == ListOps(depth=5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task_name": "chess"}, "task_name must be one of code_execution, list_ops"),
        ({"task_name": []}, "task_name must be one of"),
        ({"task": {"depth": "deep"}}, "task.depth must be a whole number, not 'deep'"),
        ({"trainer": {"epochs": 1.5}}, "trainer.epochs must be a whole number, not 1.5"),
        ({"trainer": 3}, "trainer. must be names with values, not 3"),
        ({"data": 3}, "data must be a path or nothing, not 3"),
    ],
)
def test_a_file_s_options_are_of_their_kinds(change, says):
    with pytest.raises(ValueError, match=says):
        SequenceOptions.from_dict(paper("rdn", ListOps()).to_dict() | change)


def test_differences_leave_out_where_a_run_computes():
    options = paper("rdn", ListOps())
    changed = SequenceOptions.from_dict(options.to_dict() | {"num_threads": 1, "seed": 4})
    assert differences(options, changed) == ["--seed 4 (was 1)"]


@pytest.mark.parametrize("core", ["lstm", "rdn", "lt"])
def test_a_command_line_gives_the_same_options_whatever_the_preset(core):
    wanted = small(core, CodeExecution(variables=2, legacy_conditional_assign=True))
    other = paper(core, CodeExecution())
    kind = SequenceOptions[CodeExecution]
    assert tyro.cli(kind, args=flags(wanted), default=other) == wanted


def test_the_papers_figures():
    scores = {(s.task, s.table, s.setting, s.row): s.mean for s in algorithmic()}
    assert scores["code_execution", 2, "variables=3", "RDN"] == 92.6
    assert scores["list_ops", 2, "depth=15", "LSTM"] == 24.4
    assert scores["code_execution", 5, "variables=5", "Delta RNN"] == 99.3
    assert scores["code_execution", 6, "variables=5", "Delta RNN 8 x 128"] == 94.1
    assert scores["list_ops", 7, "depth=15", "LSTM 4096"] == 72.2
    assert len(scores) == len(algorithmic()) == 48


def test_a_tables_cells_are_the_presets_with_its_settings_and_sizes():
    by_row = {cell.published.row: cell for cell in cells(CodeExecution, 6, "paper", None)}
    deep = by_row["Delta RNN 8 x 128"].options
    assert deep.task == CodeExecution(variables=5)
    assert (deep.core_layers, deep.core_width, deep.core_heads) == (8, 128, 8)
    assert round(sum(p.numel() for p in deep.build().parameters()) / 1e6, 1) == 1.3
    short = cells(ListOps, 2, "small", 3)[0].options
    assert (short.task.depth, short.trainer.epochs) == (5, 3)


def test_markdown_has_both_figures():
    row = {
        "setting": "depth=10",
        "row": "RDN",
        "core": "rdn",
        "measure": "test",
        "percent": [80.0, 90.0],
        "paper_mean": 83.2,
        "paper_std": 0.9,
    }
    line = markdown([row, row | {"percent": []}]).splitlines()
    assert line[2] == "| depth=10 | RDN | `rdn` | test | 85.0 ± 5.0 | 80.0, 90.0 | 83.2 ± 0.9 |"
    assert line[3] == "| depth=10 | RDN | `rdn` | test |  |  | 83.2 ± 0.9 |"


def tiny(core, task):
    options = small(core, task).to_dict()
    sizes = {"train_size": 8, "valid_size": 4, "test_size": 4, "core_width": 8}
    trainer = options["trainer"] | {"epochs": 1, "batch_size": 8}
    return SequenceOptions.from_dict(options | sizes | {"trainer": trainer})


def test_a_table_runs_what_is_missing_and_writes_both_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PRESETS, "tiny", tiny)
    asked = TableOptions(seeds=(1,), only=("lstm",), runs=tmp_path / "runs", out=tmp_path)
    there = tmp_path / "runs" / "tiny" / "list_ops-depth10-lstm-seed1"
    there.mkdir(parents=True)
    result = {"sequence_accuracy": 0.625, "answer_accuracy": 0.625}
    (there / "result.json").write_text(json.dumps({"test": result}))
    (there / "meta.json").write_text(json.dumps({"git": {"commit": "abc"}}))
    assert make_table(ListOps, 2, "tiny", asked) == 0
    assert "2 runs, 1 of them to do" in capsys.readouterr().out
    written = (tmp_path / "list_ops_table_2.md").read_text()
    lstm = [line for line in written.splitlines() if "`lstm`" in line]
    kept, trained = (line.split("|")[5].strip() for line in lstm)
    assert kept == "62.5 ± 0.0" and "±" in trained
    rows = json.loads((tmp_path / "list_ops_table_2.json").read_text())
    commits = [[result["commit"] for result in row["results"]] for row in rows if row["results"]]
    assert commits[0] == ["abc"] and len(commits) == 2
    assert make_table(ListOps, 2, "tiny", asked) == 0
    assert "2 runs, 0 of them to do" in capsys.readouterr().out
    assert make_table(ListOps, 2, "tiny", replace(asked, settings=("depth=10",))) == 0
    printed = capsys.readouterr().out
    assert "1 runs, 0 of them to do" in printed and "depth=15" not in printed
