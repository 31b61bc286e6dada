"""`runs/latest` means the run that it named first, wherever it points later.

A run that another process starts meanwhile moves it.
"""

import shutil
from pathlib import Path

import pytest
from small_runs import CATCH, SMALL, StoppingDisplay
from small_texts import TEXT, plain

from fastweights.launch import atari, evaluate, list_ops, watch, wikitext103
from fastweights.records.run_folder import RunFolder, read_meta, resolved_run

LISTS = (
    *("--preset", "small", "--train-size", "16", "--valid-size", "8", "--test-size", "8"),
    *("--batch-size", "8", "--epochs", "2", "--num-threads", "1", "--core-width", "16"),
    *("--depth", "1", "--core", "lstm"),
)
TEXTS = (
    *("--preset", "small", "--num-threads", "1", "--core-width", "16", "--columns", "4"),
    *("--span", "8", "--updates", "4", "--warm-up", "2", "--evaluate-every", "2", "--stride", "3"),
    *("--sample-length", "0", "--ngram-rows", "50", "--core", "lstm", "--precision", "float32"),
)
AGENT = (*CATCH, *SMALL, "--total-steps", "60")


@pytest.fixture
def moving_latest(tmp_path, monkeypatch):
    """Point `latest` to the run `one`, and to `two` once a command opens a run."""
    latest, open_run = tmp_path / "latest", RunFolder.open

    def point_to(name):
        latest.unlink()
        latest.symlink_to(name)

    def open_later(*arguments):
        point_to("two")
        return open_run(*arguments)

    def start():
        point_to("one")
        monkeypatch.setattr(RunFolder, "open", open_later)
        return latest

    return start


@pytest.mark.parametrize(
    ("command", "options", "display"),
    [
        (atari, AGENT, "agents.run"),
        (list_ops, LISTS, "learning"),
        (wikitext103, TEXTS, "learning"),
    ],
)
def test_the_run_that_is_opened_is_the_run_whose_options_were_read(
    command, options, display, tmp_path, monkeypatch, moving_latest
):
    if command is wikitext103:
        lines = {split: content * 6 for split, content in TEXT.items()}
        text = plain(tmp_path / "wikitext-2", "wiki.{}.tokens", lines)
        options = (*options, "--data", str(text))
    with monkeypatch.context() as patch:
        patch.setattr(f"fastweights.experiments.{display}.ProgressDisplay", StoppingDisplay)
        assert command.main([*options, "--savedir", str(tmp_path), "--xpid", "one"]) == 130
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    before = read_meta(tmp_path / "two")
    assert command.main(["--resume", str(moving_latest())]) == 0
    assert read_meta(tmp_path / "one")["successful"]
    assert read_meta(tmp_path / "two") == before and "resumed" not in before


@pytest.mark.parametrize(
    ("command", "next_step", "arguments", "made"),
    [
        (evaluate, "check_plays", ("--episodes", "2", "--clip-seconds", "1"), "evaluations"),
        (watch, "environments_to_film", ("--frames", "2"), "clips"),
    ],
)
def test_what_a_trained_agent_makes_stays_in_the_run_that_was_loaded(
    command, next_step, arguments, made, tmp_path, monkeypatch
):
    for name in ("one", "two"):
        assert atari.main([*AGENT, "--savedir", str(tmp_path), "--xpid", name]) == 0
    latest, after_loading = tmp_path / "latest", getattr(command, next_step)
    latest.unlink()
    latest.symlink_to("one")

    def later(*given):
        latest.unlink()
        latest.symlink_to("two")
        return after_loading(*given)

    monkeypatch.setattr(command, next_step, later)
    assert command.main([str(latest), "--num-threads", "1", *arguments]) == 0
    assert list((tmp_path / "one" / made).iterdir())
    assert not (tmp_path / "two" / made).exists()


def test_a_relative_path_stays_relative(tmp_path, monkeypatch):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "model.tar").touch()
    (tmp_path / "runs" / "latest").symlink_to("one")
    monkeypatch.chdir(tmp_path)
    for given, meant in [
        ("runs/latest", "runs/one"),
        ("runs/latest/model.tar", "runs/one/model.tar"),
        ("runs/lates", "runs/lates"),  # as the user wrote it, for the error that follows
        ("../nothing", "../nothing"),
        (tmp_path / "runs" / "latest", tmp_path.resolve() / "runs" / "one"),
    ]:
        assert resolved_run(Path(given)) == Path(meant)
