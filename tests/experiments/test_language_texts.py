"""Texts that change under a trained model or a table of them."""

from pathlib import Path

import pytest
from forks import NOBODY_READS, Program
from small_texts import plain

from fastweights.launch import wikitext103
from tests.experiments.test_language_run import LINES, error_of, train


@pytest.fixture
def text(tmp_path) -> Path:
    return plain(tmp_path / "text", "wiki.{}.tokens", LINES)


def change(text: Path) -> None:
    valid = text / "wiki.valid.tokens"
    valid.write_text(valid.read_text() + (text / "wiki.train.tokens").read_text())


def test_a_text_that_changed_since_is_not_evaluated_unless_it_is_named(text, tmp_path, capsys):
    assert train(text, tmp_path, "a", "--updates", "1") == 0
    run = tmp_path / "a"
    assert wikitext103.main(["evaluate", str(run)]) == 0
    kept = {path: path.read_text() for path in (run / "evaluations").iterdir()}
    change(text)
    said = error_of(("evaluate", run), capsys)
    assert f"has changed since {run} was trained on it" in said and "--data" in said
    assert wikitext103.main(["evaluate", str(run), "--data", str(text)]) == 0
    assert {path: path.read_text() for path in kept} == kept


def test_a_table_does_not_show_runs_on_another_text(
    forked_runs, text, tmp_path, monkeypatch, capsys
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    asked = ["--table", "1", "--preset", "small", "--only", "lt", "--seeds", "1", "--jobs", "1"]
    asked += ["--data", str(text), "--updates-at-most", "1", "--runs", str(tmp_path / "tables")]
    assert wikitext103.main(asked) == 0
    assert not list(Path().iterdir())  # the text's numbers lie beside the runs
    change(text)
    assert "holds a run on another text than the table's" in error_of(asked, capsys)


def test_generated_text_may_be_cut_off_by_its_reader(text, tmp_path):
    assert train(text, tmp_path, "a", "--updates", "1") == 0
    ended = Program(NOBODY_READS, "wikitext103", "generate", tmp_path / "a", "--length", "0").end()
    said = [one for one in ended.stderr.splitlines() if "no C++ compiler found" not in one]
    assert (ended.returncode, said) == (141, [])


def test_an_export_with_a_link_out_of_it_is_refused(text, tmp_path, capsys):
    assert train(text, tmp_path, "a", "--updates", "1") == 0
    out, elsewhere = tmp_path / "exported", tmp_path / "elsewhere"
    assert wikitext103.main(["export", str(tmp_path / "a"), str(out)]) == 0
    elsewhere.mkdir()
    (out / "evaluations").symlink_to(elsewhere)
    said = error_of(("evaluate", out, "--data", text, "--cache", tmp_path / "cache"), capsys)
    assert "is a link out of the run folder" in said and not list(elsewhere.iterdir())
