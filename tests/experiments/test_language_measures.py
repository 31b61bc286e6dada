"""Measures of trained language models: what counts as a code, and in which precision."""

import json
from pathlib import Path

import pytest
from small_texts import plain

from fastweights.experiments.language_model.cells import LanguageRun
from fastweights.experiments.language_model.ngram import smoothed_ngrams
from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.experiments.language_model.text import text_of
from fastweights.experiments.learning import RESULT_FILE
from fastweights.launch import wikitext103
from fastweights.records import read_logs, read_meta

TINY = (
    *("--preset", "small", "--num-threads", "1", "--core", "lstm", "--core-width", "16"),
    *("--span", "8", "--updates", "2", "--warm-up", "1", "--evaluate-every", "1"),
    *("--ngram-rows", "50", "--stride", "3", "--columns", "4"),
)
RAW = {  # "dog" is rare and "fox" is in no training split: both become `<unk>`
    "train": 30 * "the cat sat on the mat\n" + "a dog\n",
    "valid": 5 * "the cat sat on a dog\n",
    "test": 5 * "the fox sat\n",
}
TOKENS = {
    split: lines.replace("dog", "<unk>").replace("fox", "<unk>") for split, lines in RAW.items()
}


def train(folder: Path, *options: str) -> Path:
    where = ("--savedir", str(folder), "--xpid", "a", "--cache", str(folder / "cache"))
    assert wikitext103.main([*TINY, *where, *options]) == 0
    return folder / "a"


def evaluated(run: Path, *options: str) -> dict:
    asked = ("--split", "test", "--protocol", "sliding", "--stride", "3", *options)
    assert wikitext103.main(["evaluate", str(run), "--num-threads", "1", *asked]) == 0
    (path,) = (run / "evaluations").glob("*_test_windows*.json")
    return json.loads(path.read_text())


def options_of(run: Path) -> LanguageOptions:
    return LanguageOptions.from_dict(read_meta(run)["args"])


def test_words_that_became_unknown_leave_no_bits_per_byte(tmp_path, capsys):
    """Their bytes would count, but not their spelling: a larger --min-count looked better."""
    text = plain(tmp_path / "text", "{}.txt", RAW)
    run = train(tmp_path, "--data", str(text), "--vocabulary", "words")
    result = json.loads((run / RESULT_FILE).read_text())
    assert result["valid"]["bits_per_byte"] is None and result["test"]["bits_per_byte"] is None
    assert (result["valid"]["replaced"], result["test"]["replaced"]) == (10, 5)
    assert evaluated(run)["bits_per_byte"] is None
    said = capsys.readouterr().out
    reason = "no bits per byte (5 of 20 tokens became <unk>, whose spelling is not counted)"
    assert said.count(reason) == 2  # of the run, and of the evaluation
    assert "valid_bits_per_byte" not in read_logs(run)
    assert wikitext103.main(["export", str(run), str(tmp_path / "out")]) == 0
    assert "| none: rare words are `<unk>` |" in (tmp_path / "out" / "README.md").read_text()
    assert LanguageRun(options_of(run), "").result()["test"] == result["test"]
    (ngram,) = smoothed_ngrams(text_of(options_of(run)))
    assert (ngram.valid, ngram.test) == (None, None)
    assert "no bits per byte, because words became <unk>" in ngram.said()


@pytest.mark.parametrize("vocabulary", ["words", "bytes"])
def test_a_text_with_its_own_unknown_words_has_bits_per_byte(vocabulary, tmp_path, capsys):
    """WikiText's `<unk>` is part of the published text."""
    text = plain(tmp_path / "text", "wiki.{}.tokens", TOKENS)
    run = train(tmp_path, "--data", str(text), "--vocabulary", vocabulary)
    test = json.loads((run / RESULT_FILE).read_text())["test"]
    assert test["replaced"] == 0
    assert f"{test['bits_per_byte']:.4f} bits per byte" in capsys.readouterr().out
    assert all(read_logs(run)["valid_bits_per_byte"])
    (ngram, *_) = smoothed_ngrams(text_of(options_of(run)))
    assert f"{ngram.test:.3f} test bits per byte" in ngram.said()


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_an_evaluation_has_its_runs_precision(precision, tmp_path):
    """In float32, the evaluation of a run in bfloat16 differed from its result."""
    text = plain(tmp_path / "text", "{}.txt", RAW)
    run = train(tmp_path, "--data", str(text), "--precision", precision)
    result = json.loads((run / RESULT_FILE).read_text())
    found = evaluated(run, "--by-position", "--context", "8")
    assert found["precision"] == result["precision"] == precision
    assert found["loss"] == result["test"]["loss"]
    (path,) = (run / "evaluations").glob("*by_position*.json")
    assert json.loads(path.read_text())["precision"] == precision
