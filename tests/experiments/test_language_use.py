"""Trained language models: which model, text and cache the commands use, and what they refuse."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from small_texts import TEXT, plain
from test_language_measures import TINY

from fastweights.experiments.language_model import prompt_tokens
from fastweights.experiments.language_model.saved import open_model
from fastweights.experiments.learning import RESULT_FILE
from fastweights.launch import wikitext103
from fastweights.tasks.language_model.generation import Sampling, draw
from tests.launch.test_bad_input import error_of

PLACED = ("--positions", "sinusoidal", "--vocabulary", "words", "--min-count", "1")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return a run, begun with relative folders, of a model with positions."""
    place = tmp_path_factory.mktemp("place")
    text = plain(place / "text", "wiki.{}.tokens", {split: 6 * TEXT[split] for split in TEXT})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        where = ("--data", str(text), "--savedir", "mine", "--xpid", "a")
        assert wikitext103.main([*TINY, *PLACED, *where]) == 0
    return place / "mine" / "a"


def evaluate(run: Path, *words: str) -> list[str]:
    return ["evaluate", str(run), "--num-threads", "1", "--split", "test", *words]


def test_an_evaluation_uses_the_run_s_cache_from_anywhere(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set((run.parent / "texts").iterdir())
    assert wikitext103.main(evaluate(run, "--stride", "4")) == 0
    assert not list(tmp_path.iterdir()) and set((run.parent / "texts").iterdir()) == before


def test_a_cache_is_found_again_from_another_folder(run, tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    monkeypatch.chdir(here)
    where = ("--data", str(run.parents[1] / "text"), "--savedir", "runs", "--xpid", "b")
    assert wikitext103.main([*TINY, *PLACED, *where, "--cache", "cache"]) == 0
    monkeypatch.chdir(there)
    assert wikitext103.main(evaluate(here / "runs" / "b", "--stride", "4")) == 0
    assert not list(there.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--protocol", "full-context", "--columns", "1000"), "--columns 1,000 is more than the"),
        (("--window", "1000000000000"), "--window 1,000,000,000,000 is more than the"),
        (("--by-position", "--context", "1000"), "--context 1,000 is more than the"),
        (("--core", "rdn"), "has the core lstm, not --core rdn"),
    ],
)
def test_more_than_the_text_has_or_another_core_is_one_line(words, says, run, capsys):
    assert says in error_of(wikitext103.main, evaluate(run, *words), capsys)


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        (("--stride", "4"), False),
        (("--stride", "4", "--window", "9"), True),
        (("--protocol", "full-context"), True),
        (("--stride", "4", "--by-position", "--context", "9"), True),
        (("--stride", "4", "--by-position", "--context", "8"), False),
        (("--protocol", "full-context", "--by-position", "--context", "8"), True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_positions_beyond_those_of_training_are_noted(words, is_said, run, capsys):
    assert wikitext103.main(evaluate(run, *words)) == 0
    assert ("only trained on positions up to 8" in capsys.readouterr().out) == is_said


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=1e-46), Sampling(top_p=1e-46), Sampling(temperature=1e300)]
)
def test_extreme_sampling_is_finite(sampling):
    scores = torch.tensor([0.1, 0.7, 0.2]).log()
    found = {draw(scores, sampling, torch.Generator().manual_seed(seed)) for seed in range(20)}
    assert found == {1} if sampling.temperature <= 1 else found == {0, 1, 2}


def test_seeds_of_generated_text_are_checked(run, capsys):
    line = error_of(wikitext103.main, ["generate", str(run), "--seed", "-1"], capsys)
    assert "--seed must lie in" in line


def test_an_export_keeps_no_evaluations_of_other_weights(run, tmp_path, capsys):
    out, other = tmp_path / "out", tmp_path / "other"
    assert wikitext103.main(["export", str(run), str(out)]) == 0
    text = str(run.parents[1] / "text")
    assert wikitext103.main(evaluate(out, "--stride", "4", "--data", text)) == 0
    assert wikitext103.main(["export", str(run), str(out)]) == 0  # the same weights
    shutil.copytree(run, other)
    payload = open_model(run).payload
    payload["model_state_dict"]["softmax.bias"] += 1
    for path in (*other.glob("checkpoints/*.pt"), other / "model.tar"):
        path.unlink()
        torch.save({"format": "fastweights-checkpoint", "version": 1} | payload, path)
    line = error_of(wikitext103.main, ["export", str(other), str(out)], capsys)
    assert f"{out / 'evaluations'} is of other weights" in line


def test_a_sample_in_training_may_have_half_a_character(tmp_path):
    """A vocabulary keeps lone surrogates; a file of samples cannot."""
    half = dict.fromkeys(("train", "valid", "test"), "\\ud800 \\ud800 the\n" * 30)
    text = plain(tmp_path / "text", "{}.txt", half)
    where = ("--data", str(text), "--savedir", str(tmp_path), "--xpid", "a")
    odd = ("--vocabulary", "words", "--min-count", "1", "--encoding", "unicode_escape")
    assert wikitext103.main([*TINY, *where, *odd, "--sample-length", "40"]) == 0
    assert "? ?" in (tmp_path / "a" / "samples.txt").read_text()


def test_a_prompt_may_have_the_vocabulary_s_own_unknown_word(run, capsys):
    vocabulary = open_model(run).vocabulary
    assert vocabulary.unknown is not None
    prompt_tokens(vocabulary, "the <unk>")
    assert capsys.readouterr().err == ""
    prompt_tokens(vocabulary, "the zebra <unk>")
    assert "note: 1 words of the prompt" in capsys.readouterr().err


def test_a_resumed_run_stays_in_its_folder(run, tmp_path, capsys):
    for words in (("--xpid", "b"), ("--savedir", str(tmp_path))):
        line = error_of(wikitext103.main, ["--resume", str(run), *words], capsys)
        assert f"stays in its folder, {run}: leave --savedir and --xpid out" in line


def test_a_run_without_its_log_is_measured_again(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "a")
    for name in (RESULT_FILE, "logs.csv", "fields.csv"):
        (copy / name).unlink()
    assert wikitext103.main(["--resume", str(copy)]) == 0
    result = json.loads((copy / RESULT_FILE).read_text())
    before = json.loads((run / RESULT_FILE).read_text())
    assert result["test"] == before["test"] and result["tokens_per_second"] is None
