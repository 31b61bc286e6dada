"""Random options in files and on command lines work or print one error line."""

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from fuzzing import (
    ACTIONS,
    OPTIONS,
    SHAPE,
    changed,
    command,
    paths,
    plain,
    scalars,
    searched,
    texts,
    values,
)
from hypothesis import strategies as st

from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.host.errors import user_input
from fastweights.launch import evaluate, replay, report, watch
from fastweights.launch.cli.atari_options import parse, peek
from fastweights.launch.cli.torchbeast_flags import translate
from fastweights.tasks import ListOps
from fastweights.training.checks import check_options
from fastweights.training.options import RunOptions
from fastweights.training.schedules.choice import plan_of


def _agent_options(data):
    names = [f.name for kind in (RunOptions, LearnerConfig) for f in fields(kind)]
    chosen = st.dictionaries(st.sampled_from(names) | texts, plain, max_size=4)
    flat = OPTIONS.to_dict() | data.draw(chosen)

    def build() -> None:
        options = RunOptions.from_dict(flat)
        check_options(options)
        with torch.device("meta"):
            Network(options.network(SHAPE, ACTIONS))
        assert RunOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options

    command(build)
    command(lambda: RunOptions.from_dict(data.draw(plain)))


def _sequence_options(data):
    whole = sequence_preset("small", "rdn", ListOps()).to_dict()
    way = data.draw(st.sampled_from(paths(whole)))
    flat = changed(whole, way, data.draw(values))

    def build() -> None:
        options = SequenceOptions.from_dict(flat)
        options.check()
        with torch.device("meta"):
            options.build()

    command(build)


test_agent_options, test_agent_options_longer = searched(_agent_options, 60, 600, st.data())
test_sequence_options, test_sequence_options_longer = searched(
    _sequence_options, 40, 1000, st.data()
)


# Command lines

FLAGS = [f"--{f.name.replace('_', '-')}" for k in (RunOptions, LearnerConfig) for f in fields(k)]


FLAGS_WITH_VALUES = st.lists(
    st.tuples(st.sampled_from([*FLAGS, "--preset"]), scalars.map(str)), max_size=4
)


def _training_command(pairs):
    arguments = [part for pair in pairs for part in pair]

    def plan() -> None:
        rewritten, _ = translate(arguments)
        peek(rewritten)
        plan_of(replace(parse(rewritten).run, device="cpu"))

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            with user_input():
                plan()
        except SystemExit as exit_:
            assert exit_.code == 2
        except ValueError as error:
            assert str(error)


def _other_commands(main, run, arguments):
    with tempfile.TemporaryDirectory() as folder:
        place, said = f"{folder}/{run}", io.StringIO()
        with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as exit_:
            main([place, *arguments])
        assert exit_.value.code == 2 and "Traceback" not in said.getvalue()
        assert not any(Path(folder).iterdir())


test_training_command, test_training_command_longer = searched(
    _training_command, 12, 100, FLAGS_WITH_VALUES
)
test_other_commands, test_other_commands_longer = searched(
    _other_commands,
    12,
    100,
    st.sampled_from([evaluate.main, watch.main, report.main, replay.main]),
    texts.filter(lambda text: text not in ("", "1") and "\0" not in text),
    st.lists(scalars.map(str), max_size=2),
)
