"""A run with a constant learning rate may get more agent steps later."""

import json

import pytest
from small_runs import assert_same_run, atari, train

from fastweights.records import current_options, read_meta


def test_a_finished_run_goes_on_with_more_steps_if_its_learning_rate_is_constant(tmp_path, capsys):
    constant = ("--learning-rate", 1e-3, "--final-learning-rate", 1e-3)
    job = ["--resume", str(tmp_path / "job")]
    assert train(tmp_path, "job", *constant, "--total-steps", 100) == 0
    with pytest.raises(SystemExit, match="2"):
        atari.main(job)
    assert ", or add a larger --total-steps" in capsys.readouterr().err
    assert atari.main([*job, "--total-steps", "200"]) == 0
    assert train(tmp_path, "whole", *constant, "--total-steps", 200) == 0
    assert_same_run(tmp_path / "job", tmp_path / "whole")


def test_a_longer_run_that_was_killed_at_its_end_is_recorded_as_longer(tmp_path):
    again = ("--auto-resume", "--learning-rate", 1e-3, "--final-learning-rate", 1e-3)
    for steps in (100, 200):
        assert train(tmp_path, "job", *again, "--total-steps", steps) == 0
    meta = read_meta(tmp_path / "job") | {"date_end": None, "successful": False}
    (tmp_path / "job" / "meta.json").write_text(json.dumps(meta))
    assert train(tmp_path, "job", *again, "--total-steps", 200) == 0
    meta = read_meta(tmp_path / "job")
    assert meta["successful"] and current_options(meta)["total_steps"] == 200


def test_a_run_whose_learning_rate_falls_cannot_be_lengthened(tmp_path, capsys):
    assert train(tmp_path, "linear", "--total-steps", 100) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        atari.main(["--resume", str(tmp_path / "linear"), "--total-steps", "200"])
    assert "--total-steps 200 (was 100)" in capsys.readouterr().err
