"""Options of only some cores: on every command line, in files, and when resuming."""

import json

import pytest
from small_runs import GROUPS, StoppingDisplay, logged, train

from fastweights.experiments.learning import RESULT_FILE
from fastweights.experiments.learning_options import (
    differing_learning_options as sequence_differences,
)
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.launch import atari, code_execution
from fastweights.tasks import ListOps
from fastweights.training.options import RunOptions, changed_flags
from tests.launch.test_bad_input import error_of

NORMALISED = ("--core", "lt", "--core-normaliser", "key_sum")
PUBLISHED_MAPS = ("--core-feature-map", "elu_sum", "--core-recurrent-feature-map", "softmax")
ASKED = {
    "lt": NORMALISED,
    "delta_rnn": ("--core", "delta_rnn", *PUBLISHED_MAPS),
    "delta_lstm": ("--core", "delta_lstm", *PUBLISHED_MAPS),
    "srwm": ("--core", "srwm", "--core-input-map", "identity"),
}
TINY = ("--core-width", "16", "--core-heads", "2", "--core-layers", "1")
SHORT = ("--total-steps", "60")
PROGRAMS = (
    *("--preset", "small", "--statements", "4", "--train-size", "40", "--valid-size", "8"),
    *("--test-size", "8", "--batch-size", "8", "--epochs", "1", "--num-threads", "1", *TINY),
)
ADDED = ("core_normaliser", "core_recurrent_feature_map", "core_input_map")


@pytest.mark.parametrize("core", ASKED)
def test_they_decide_what_an_agent_learns(core, tmp_path):
    assert train(tmp_path, "asked", *ASKED[core], *TINY, *SHORT) == 0
    assert train(tmp_path, "plain", *ASKED[core][:2], *TINY, *SHORT) == 0
    asked, plain = (logged(tmp_path / name)["total_loss"] for name in ("asked", "plain"))
    assert len(asked) == 3 and asked[-1] != plain[-1]


@pytest.mark.parametrize("core", ASKED)
def test_they_are_there_in_sequence_tasks(core, tmp_path):
    where = ("--savedir", str(tmp_path), "--xpid", "a")
    assert code_execution.main([*PROGRAMS, *ASKED[core], *where]) == 0
    assert json.loads((tmp_path / "a" / RESULT_FILE).read_text())["epochs"] == 1


def test_a_normalised_memory_acts_while_it_learns(tmp_path):
    assert train(tmp_path, "a", *NORMALISED, *TINY, *SHORT, *GROUPS) == 0


def test_a_normalised_run_goes_on_normalised(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
    assert train(tmp_path, "cut", *NORMALISED, *TINY, *SHORT) == 130
    monkeypatch.undo()
    cut = tmp_path / "cut"
    line = error_of(atari.main, ["--resume", cut, "--core-normaliser", "none"], capsys)
    assert "--core-normaliser none" in line
    assert atari.main(["--resume", str(cut)]) == 0
    assert train(tmp_path, "whole", *NORMALISED, *TINY, *SHORT) == 0
    assert logged(cut)["total_loss"][0] == logged(tmp_path / "whole")["total_loss"][0]
    assert logged(cut)["step"] == [20, 40, 60]


@pytest.mark.parametrize(
    ("main", "where"), [(atari.main, ["--env", "Catch"]), (code_execution.main, [])]
)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--core", "lt", "--core-normaliser", "sum"], "'sum'; known: none, key_sum"),
        ([*NORMALISED, "--core-feature-map", "identity"], "use softmax, elu_sum or elu"),
        (["--core", "rdn", "--core-normaliser", "key_sum"], "no option 'normaliser'; it has: "),
        (["--core", "delta_rnn", "--core-recurrent-feature-map", "relu"], "known: softmax, elu_"),
        (["--core", "srwm", "--core-input-map", "relu"], "known: softmax, elu_sum, elu, identity"),
        (["--core", "rdn", "--core-input-map", "identity"], "no option 'input_map'; it has: "),
        (["--core", "rdn", "--core-recurrent-feature-map", "elu"], "'recurrent_feature_map'; it"),
    ],
)
def test_a_core_refuses_what_it_cannot_be(main, where, arguments, says, tmp_path, capsys):
    assert says in error_of(main, [*where, *arguments, "--savedir", tmp_path], capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("core", ASKED)
def test_a_run_from_before_they_were_there_is_what_it_was(core):
    agent = RunOptions(core=core)
    sequence = SequenceOptions(task=ListOps(), core=core)
    old_agent, old_sequence = (
        {name: value for name, value in options.to_dict().items() if name not in ADDED}
        for options in (agent, sequence)
    )
    assert len(agent.to_dict()) - len(old_agent) == len(ADDED)
    assert RunOptions.from_dict(old_agent) == agent
    assert changed_flags(RunOptions.from_dict(old_agent), agent) == []
    assert SequenceOptions.from_dict(old_sequence) == sequence
    assert sequence_differences(SequenceOptions.from_dict(old_sequence), sequence) == []
    assert agent.core_options() == ()
