"""Words of the command line that are empty, missing, repeated or contradict a run: one line."""

import pytest

from fastweights.launch import (
    atari,
    code_execution,
    formal_language,
    list_ops,
    suite,
    t_maze,
    wikitext103,
)
from fastweights.training.replicas import Replicas
from tests.launch.test_bad_input import error_of


@pytest.mark.parametrize(
    ("main", "words", "says"),
    [
        (atari.main, ["--preset", ""], "unknown preset ''"),
        (list_ops.main, ["--preset", ""], "unknown preset ''"),
        (wikitext103.main, ["--preset", ""], "unknown preset ''"),
        (wikitext103.main, ["--preset", "small", "--data", ""], "--data is empty"),
        (atari.main, ["--num_buffers", "--env", "Pong"], "--num_buffers needs a value"),
        (atari.main, ["--env", "Pong", "--queue_timeout"], "--queue_timeout needs a value"),
        (suite.main, ["ablation", "--seeds", "1", "--seeds", "5"], "--seeds is given twice"),
        (t_maze.main, ["--cores", "rdn", "--cores", "lstm"], "all values after one --cores"),
        (wikitext103.main, ["--vocabulary", "bytes", "--min-count", "7"], "--min-count belongs"),
        (code_execution.main, ["--core-width", "1000000000"], "'width' must be at most 100000"),
        (formal_language.main, ["--seeds", "5"], "only with --table, --figure, --summary or --s"),
        (list_ops.main, ["--seeds", "5"], "works only with --table: add --table"),
    ],
)
def test_it_is_one_line(main, words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert says in error_of(main, words, capsys)
    assert not list(tmp_path.iterdir())


def test_a_learner_s_place_must_be_numbers(monkeypatch, capsys):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for name, value in zip(names, ("x", "2", "0", "2"), strict=True):
        monkeypatch.setenv(name, value)
    line = error_of(atari.main, ["--env", "Catch", "--num-envs", "4"], capsys)
    assert "as torchrun does: RANK=x, WORLD_SIZE=2" in line
    monkeypatch.setenv("RANK", "1")
    assert Replicas.from_environment().rank == 1
