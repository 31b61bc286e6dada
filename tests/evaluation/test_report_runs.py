"""Which runs a report groups as seeds of one setting, and how it names them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fastweights.evaluation.reports.cells import revision
from fastweights.evaluation.reports.runs import grouped_runs, open_runs
from fastweights.launch import report
from fastweights.records import RunFolder
from fastweights.training import RunOptions
from tests.evaluation.report_pages import (
    RUNS,
    evaluation,
    four_options,
    reported,
    short_run,
    words_of,
)
from tests.launch.test_bad_input import error_of


def learning(changes: dict) -> dict:
    return {"learner": replace(RunOptions().learner, **changes)}


def changed(run: Path, path: Path, before: str, after: str) -> Path:
    """Copy a run and change an option in its meta.json."""
    shutil.copytree(run, path)
    meta = path / "meta.json"
    text = meta.read_text()
    assert before in text
    meta.write_text(text.replace(before, after))
    return path


def test_how_fast_a_run_was_made_is_no_difference_but_its_precision_is(runs, tmp_path):
    one, names = runs / "rdn-1", ("float32", "bfloat16")
    have, other = names if "float32" in (one / "meta.json").read_text() else names[::-1]
    again = runs / "rdn-2"
    slower = changed(again, tmp_path / "slower", '"micro_batch": null', '"micro_batch": 2')
    rounded = changed(
        one, tmp_path / "rounded", f'"precision": "{have}"', f'"precision": "{other}"'
    )
    found = grouped_runs(open_runs([one, slower, rounded]))
    assert {group.label: len(group.runs) for group in found} == {
        f"rdn, precision {have}": 2,
        f"rdn, precision {other}": 1,
    }


def test_of_several_folders_those_without_a_run_are_left_out(runs, tmp_path, capsys):
    """As in `report.py runs/*` for the second time, beside a run that has just begun."""
    (tmp_path / "report").mkdir()
    begun, sequences = tmp_path / "begun", tmp_path / "sequences"
    RunFolder.create(tmp_path, "begun", RunOptions(env="Pong", core="rdn").to_dict()).finish()
    RunFolder.create(tmp_path, "sequences", {"task_name": "list_ops"}).finish()
    odd = shutil.copytree(runs / "rdn-2", tmp_path / "odd")
    meta = json.loads((odd / "meta.json").read_text())
    meta["args"]["env_options"] = ["odd"]
    (odd / "meta.json").write_text(json.dumps(meta))
    (found,) = open_runs([tmp_path / "report", begun, sequences, odd, runs / "rdn-1"])
    assert found.path == (runs / "rdn-1").resolve() and found.name == "rdn-1"
    said = capsys.readouterr().err
    assert f"note: skipped: {tmp_path / 'report'} holds no run (no meta.json)" in said
    assert f"note: skipped: {begun} has no log rows yet" in said
    assert f"note: skipped: {sequences} is a run of list_ops, a sequence task" in said
    assert f"note: skipped: {odd / 'meta.json'} is damaged: --env-options takes" in said
    said = error_of(report.main, [tmp_path / "report"], capsys)
    assert "report holds no run (no meta.json)" in said
    said = error_of(report.main, [runs / "rdn-1" / "logs.csv"], capsys)
    assert f"logs.csv is a file: give its run folder, {runs / 'rdn-1'}" in said
    said = error_of(report.main, [runs / "rdn-1", tmp_path / "nowhere"], capsys)
    assert "nowhere holds no run" in said


def test_a_report_on_runs_of_several_folders_lies_beside_the_first(runs, tmp_path):
    elsewhere = shutil.copytree(runs / "rdn-2", tmp_path / "elsewhere" / "rdn-2")
    first = shutil.copytree(runs / "rdn-1", tmp_path / "here" / "rdn-1")
    assert report.main([str(first), str(elsewhere)]) == 0
    assert (tmp_path / "here" / "report" / "report.html").exists()


@pytest.mark.parametrize("name", ["report.md", "report.html", "report_figures"])
def test_a_file_where_a_folder_must_be_or_a_folder_where_a_file_must_be(
    name, runs, tmp_path, capsys
):
    if name == "report_figures":
        (tmp_path / name).write_text("mine")
    else:
        (tmp_path / name).mkdir()
    said = error_of(report.main, [runs / "rdn-1", "--out", tmp_path], capsys)
    assert said.startswith(f"error: {tmp_path / name}: ")


def test_an_option_that_came_later_had_its_default_before(runs, tmp_path):
    one = runs / "rdn-1"
    older = changed(runs / "rdn-2", tmp_path / "older", '"feed_last_action": false,', "")
    on = '"feed_last_action": false', '"feed_last_action": true'
    other = changed(one, tmp_path / "other", *on)
    found = grouped_runs(open_runs([one, older, other]))
    assert {group.label: len(group.runs) for group in found} == {
        "rdn, feed_last_action False": 2,
        "rdn, feed_last_action True": 1,
    }


def test_a_run_of_a_sequence_task_is_named_as_one(runs, tmp_path, capsys):
    shutil.copytree(runs / "rdn-1", tmp_path / "list_ops")
    about = {"args": {"core": "rdn", "task_name": "list_ops"}}
    (tmp_path / "list_ops" / "meta.json").write_text(json.dumps(about))
    said = error_of(report.main, [tmp_path / "list_ops", "--out", tmp_path / "out"], capsys)
    assert "is a run of list_ops, a sequence task: its results are in result.json" in said


def test_seeds_are_one_group_and_other_options_are_named(runs, tmp_path):
    for name in ("rdn-1", "rdn-2"):
        changed(runs / name, tmp_path / name, '"core_width": 16', '"core_width": 32')
    found = grouped_runs(open_runs([*(runs / n for n in RUNS), *tmp_path.iterdir()]))
    assert {group.label: len(group.runs) for group in found} == {
        "lstm": 1,
        "rdn, core_width 16": 2,
        "rdn, core_width 32": 2,
    }


def test_a_seed_counts_once_with_its_longest_or_newest_run(tmp_path, capsys):
    """Of two runs of seed 1, the curves, scores and tables have one: a copy is no second sample."""
    runs = [
        short_run(tmp_path, name, evaluation("rdn", [score]), seed=seed)
        for name, seed, score in [("first", 1, 2.0), ("later", 1, 4.0), ("other", 2, 6.0)]
    ]
    copy = shutil.copytree(runs[1], tmp_path / "copy")
    left_out = (
        "note: skipped: {} repeats seed 1 of {}; of one seed, the longest or newest run counts"
    )
    page = reported(tmp_path / "out", *runs, copy)
    assert capsys.readouterr().err.splitlines() == [
        left_out.format(one, runs[1]) for one in (runs[0], copy)
    ]
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| rdn | 256 | 5.00 ± 1.00 | 2 seeds |" in text
    assert "(2 seeds, 1 to 1)" in text and "3 seeds" not in text
    assert {row[0] for row in page.rows if "finished" in row} == {"later", "other"}
    logs = runs[0] / "logs.csv"
    logs.write_text(logs.read_text().replace(",256,", ",512,"))
    (group,) = grouped_runs(open_runs([*runs, copy]))
    assert [run.name for run in group.runs] == ["first", "other"]


def test_a_run_that_was_lengthened_has_its_last_options(tmp_path):
    """It is no further seed of the shorter runs, and equals one that was longer from the start."""
    rate = {"final_learning_rate": 1e-3, "learning_rate": 1e-3}
    short, long = ({**rate, "total_steps": steps} for steps in (128, 256))
    runs = [short_run(tmp_path, "lengthened", **learning(short))]
    RunFolder.open(runs[0], RunOptions(env="Pong", core="rdn", **learning(long)).to_dict()).finish()
    runs += [short_run(tmp_path, "short", seed=2, **learning(short))]
    runs += [short_run(tmp_path, "long", seed=3, **learning(long))]
    found = grouped_runs(open_runs(runs))
    assert {group.label: [run.name for run in group.runs] for group in found} == {
        "rdn, total_steps 128": ["short"],
        "rdn, total_steps 256": ["lengthened", "long"],
    }


def test_a_run_that_was_resumed_at_another_revision_has_both(tmp_path):
    run = short_run(tmp_path, "run")
    meta = json.loads((run / "meta.json").read_text())
    first, second = ({"commit": letter * 40, "is_dirty": False} for letter in "ab")
    again = [{"git": first}, {"git": second}, {"git": second}]
    (run / "meta.json").write_text(json.dumps(meta | {"git": first, "resumed": again}))
    (opened,) = open_runs([run])
    assert revision(opened) == "aaaaaaaaa, then bbbbbbbbb"


def test_an_environment_s_options_are_named_as_they_are_typed(runs, tmp_path):
    for name, changes in {"none": [], "two": ["sticky=0.25", "frame_skip=2"]}.items():
        shutil.copytree(runs / "rdn-1", tmp_path / name)
        meta = json.loads((tmp_path / name / "meta.json").read_text())
        meta["args"]["env_options"] = changes
        (tmp_path / name / "meta.json").write_text(json.dumps(meta))
    found = grouped_runs(open_runs([tmp_path / "none", tmp_path / "two"]))
    assert [group.label for group in found] == [
        "rdn, env_options none",
        "rdn, env_options sticky=0.25 frame_skip=2",
    ]


def test_runs_of_one_name_are_told_apart_by_where_they_are(tmp_path):
    runs = [short_run(tmp_path / where, "rdn", seed=n) for n, where in enumerate(("here", "there"))]
    logs = runs[0] / "logs.csv"
    logs.write_bytes(logs.read_bytes().replace(b"_time", b"_when", 1))
    page = reported(tmp_path / "out", *runs)
    speed = {row[0]: row[3] for row in page.rows if row[0] in ("here/rdn", "there/rdn")}
    assert speed["here/rdn"] == "-" and float(speed["there/rdn"]) >= 0
    words = words_of((tmp_path / "out/report_figures/throughput-0.svg").read_bytes())
    assert "rdn" in words and not any("None" in word for word in words)


def test_labels_name_what_differs_within_an_environment_and_stay_short(tmp_path):
    runs = [short_run(tmp_path, "pong", core_heads=2, core_width=16)]
    runs += [short_run(tmp_path, "qbert", env="Qbert", core_heads=4)]
    assert [group.label for group in grouped_runs(open_runs(runs))] == ["rdn", "rdn"]
    runs += [short_run(tmp_path, "wide", core_heads=2, core_width=32)]
    runs += [short_run(tmp_path, "usual", core_heads=2)]
    labels = {group.runs[0].name: group.label for group in grouped_runs(open_runs(runs))}
    assert labels == {
        "pong": "rdn, core_width 16",
        "wide": "rdn, core_width 32",
        "usual": "rdn",
        "qbert": "rdn",
    }
    many = [short_run(tmp_path, f"many-{n}", **four_options(n)) for n in (1, 2)]
    found = grouped_runs(open_runs(many))
    assert [group.label for group in found] == ["rdn (many-1)", "rdn (many-2)"]


def test_scores_of_two_settings_are_not_one_statistic_over_games(tmp_path):
    runs = [short_run(tmp_path, "pong", core_heads=2)]
    runs += [short_run(tmp_path, "qbert", env="Qbert", core_heads=4)]
    assert {group.settings for group in grouped_runs(open_runs(runs))} == {
        "rdn, core_heads 2",
        "rdn, core_heads 4",
    }
