"""Sequences as token files: reading returns what was written; errors name file and line."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.experiments.token_files import read_splits, write_splits
from fastweights.host.errors import UserError
from fastweights.launch import code_execution, formal_language
from fastweights.records import read_meta
from fastweights.tasks import LANGUAGES, CodeExecution, ListOps
from fastweights.tasks.sequences import draw_splits, split_sizes
from tests.launch.test_bad_input import error_of

TASKS = [LANGUAGES["parity"](), LANGUAGES["missing_duplicate"](), LANGUAGES["s3"]()]
TASKS += [CodeExecution(statements=4), ListOps(depth=2)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_what_is_written_is_read_again(task, tmp_path):
    splits = draw_splits(task, split_sizes(task, 20, 10, 10), seed=1)
    written = write_splits(tmp_path, task, splits)
    assert len(written) == 2 * len(task.splits)
    again = read_splits(tmp_path, task)
    for split, sequences in splits.items():
        assert all(map(torch.equal, sequences, again[split])), split


def test_languages_have_the_published_names(tmp_path, capsys):
    sizes = ("--train-size", "30", "--valid-size", "5", "--test-size", "5", "--sizes", "2", "20")
    where = ("--savedir", str(tmp_path), "--export", str(tmp_path / "out"))
    assert formal_language.main(["--task", "parity", *sizes, *where]) == 0
    names = {path.stem for path in (tmp_path / "out").iterdir()}
    assert names == {"train_20", "selection_20", "valid_20", "test_20"}
    lines = (tmp_path / "out" / "train_20.src").read_text().splitlines()
    answers = (tmp_path / "out" / "train_20.tgt").read_text().splitlines()
    assert len(lines) == len(answers) == 30
    parity = LANGUAGES["parity"]()
    for line, answer in zip(lines, answers, strict=True):
        assert answer.split() == [given for _, given in parity.run(line.split())]


def test_a_grid_of_runs_on_files_trains_and_knows_its_runs(tmp_path):
    task = LANGUAGES["parity"]()
    write_splits(tmp_path / "files", task, draw_splits(task, split_sizes(task, 20, 10, 10), seed=1))
    for core in ("lstm", "transformer"):
        usual = sequence_preset("small", core, task)
        trainer = replace(usual.trainer, epochs=1)
        where = {"files": tmp_path / "files", "savedir": tmp_path / "runs", "xpid": core}
        one = SequenceRun(replace(usual, core_width=8, trainer=trainer, **where))
        assert formal_language.main(one.start()[2:]) == 0
        assert one.finished and one.command() is None
        one.check()


def folder(path: Path, **files: str) -> Path:
    for name in ("train", "valid", "test"):
        for ending, text in (("src", "0 1\n1 1\n" * 10), ("tgt", "T F\nF T\n" * 10)):
            (path / f"{name}.{ending}").write_text(files.get(f"{name}_{ending}", text))
    return path


def test_where_nothing_is_held_out_every_tenth_sequence_is(tmp_path):
    splits = read_splits(folder(tmp_path), LANGUAGES["parity"]())
    assert {split: len(found.lengths) for split, found in splits.items()} == {
        "train": 18,
        "valid": 2,
        "bin0": 20,
        "bin1": 20,
    }


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"train_src": "0 1\n0 2\n", "train_tgt": "T F\nT T\n"}, "train.src, line 2: unknown '2'"),
        ({"train_src": "0 1\n", "train_tgt": "T f\n"}, "train.tgt, line 1: unknown 'f'; known: _"),
        ({"train_src": "0 1\n", "train_tgt": "T\n"}, "train.tgt, line 1: 1 answers to 2 tokens"),
        ({"train_src": "0 1\n\n", "train_tgt": "T F\n\n"}, "train.src, line 2: a sequence needs"),
        ({"test_src": "0 1\n"}, "test.src has 1 lines and test.tgt 20"),
        ({"valid_src": "", "valid_tgt": ""}, "valid.src, line 1"),
        ({"train_tgt": "T F\nT _\n_ _\n" + 17 * "T F\n"}, "train.tgt, line 3: no position has"),
    ],
)
def test_a_bad_file_is_named_with_its_line(files, says, tmp_path):
    with pytest.raises(UserError, match=says.replace(".", r"\.")) as error:
        read_splits(folder(tmp_path, **files), LANGUAGES["parity"]())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_a_file_without_answers_is_refused_before_a_run_begins(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for task, command in (
        (LANGUAGES["parity"](), formal_language),
        (CodeExecution(variables=2), code_execution),
    ):
        files = tmp_path / task.name
        splits = draw_splits(task, split_sizes(task, 20, 10, 10), seed=1)
        write_splits(files, task, splits)
        (path,) = {p for p in files.glob("*.tgt") if p.stem.split("_")[0] == name}
        path.write_text(re.sub(r"\S+", "_", path.read_text()))
        given = ["--preset", "small", "--core", "lstm", "--files", files]
        said = error_of(command.main, given, capsys)
        assert f"{path}" in said and "no position has an answer" in said
        assert [one.name for one in tmp_path.iterdir()] == [task.name]
        shutil.rmtree(files)


@pytest.mark.parametrize("is_held_out", [True, False])
def test_a_part_without_answers_is_refused_where_training_sequences_are_held_out(
    is_held_out, tmp_path, capsys, monkeypatch
):
    """Without answers that select weights, a run ended with "no checkpoint at .../best.pt"."""
    monkeypatch.chdir(tmp_path)
    task = CodeExecution(variables=2)
    files = tmp_path / "files"
    write_splits(files, task, draw_splits(task, split_sizes(task, 20, 10, 10), seed=1))
    for ending in ("src", "tgt"):
        (files / f"valid.{ending}").unlink()
    target = files / "train.tgt"
    lines = target.read_text().splitlines()
    for place in range(20):
        if (place % 10 == 0) is is_held_out:
            lines[place] = re.sub(r"\S+", "_", lines[place])
    target.write_text("\n".join(lines))
    said = error_of(
        code_execution.main, ["--preset", "small", "--core", "lstm", "--files", files], capsys
    )
    which = "lines 1, 11, ..." if is_held_out else "lines other than 1, 11, ..."
    assert f"{target}, {which} (held out: there is no valid.src): no position has" in said
    assert [one.name for one in tmp_path.iterdir()] == ["files"]


def test_one_training_sequence_cannot_be_held_out(tmp_path):
    files = folder(tmp_path, train_src="0 1\n", train_tgt="T F\n")
    with pytest.raises(UserError, match=r"train\.tgt has one sequence, which is held out: add"):
        read_splits(files, LANGUAGES["parity"]())


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_splits(tmp_path / "nowhere", LANGUAGES["parity"]())
    (folder(tmp_path) / "valid.src").unlink()
    with pytest.raises(UserError, match=r"has no sequences in valid\.src and valid\.tgt"):
        read_splits(tmp_path, LANGUAGES["parity"]())
    (tmp_path / "valid.src").write_text("0\n")
    (tmp_path / "valid_50.src").write_text("0\n")
    with pytest.raises(UserError, match=r"valid\.src and valid_50\.src: keep one"):
        read_splits(tmp_path, LANGUAGES["parity"]())
    (tmp_path / "valid_50.src").unlink()
    (tmp_path / "valid.src").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8 text"):
        read_splits(tmp_path, LANGUAGES["parity"]())


def test_a_run_learns_from_files(tmp_path, capsys):
    task = CodeExecution(statements=4)
    write_splits(tmp_path / "files", task, draw_splits(task, split_sizes(task, 20, 10, 10), seed=1))
    given = ["--preset", "small", "--core", "lstm", "--epochs", "1", "--num-threads", "1"]
    where = ["--files", tmp_path / "files", "--savedir", tmp_path, "--xpid", "a", "--statements", 4]
    said = error_of(code_execution.main, [*given, *where, "--train-size", 30], capsys)
    assert "--train-size cannot be used with --files, which are always read whole" in said
    assert code_execution.main([*given, *map(str, where), "--variables", "3"]) == 0
    assert not (tmp_path / "data").exists()
    stored = read_meta(tmp_path / "a")["args"]
    assert [stored[f"{split}_size"] for split in ("train", "valid", "test")] == [20, 10, 10]


def test_a_run_on_published_files_counts_held_out_sequences_that_it_learns_from(tmp_path, capsys):
    """Of a^n b^n, all of them: the selection and early stopping saw memorised strings only."""
    given = ["--preset", "small", "--core", "lstm", "--epochs", "1", "--num-threads", "1"]
    given += ["--task", "parity", "--test-lengths", "20", "--length-size", "2"]
    given += ["--savedir", str(tmp_path), "--files", str(folder(tmp_path)), "--xpid"]
    note = "note: 2 of 2 held-out sequences, which select the weights, are also training sequences"
    assert formal_language.main([*given, "a"]) == 0
    said = capsys.readouterr().out
    assert note in said and "selection.src and selection.tgt of --files may have others" in said
    assert formal_language.main([*given, "b", "--legacy-selection"]) == 0
    assert "held-out sequences" not in capsys.readouterr().out
    for ending, text in (("src", "0 0\n1 1\n1 0 1\n"), ("tgt", "F F\nF T\nT F T\n")):
        (tmp_path / f"selection.{ending}").write_text(text)
    assert formal_language.main([*given, "c"]) == 0
    assert "note: 1 of 3 held-out sequences" in capsys.readouterr().out
    (tmp_path / "selection.src").write_text("0 0\n1\n1 0 1\n")
    (tmp_path / "selection.tgt").write_text("F F\nT\nT F T\n")
    assert formal_language.main([*given, "d"]) == 0
    assert "held-out sequences" not in capsys.readouterr().out
