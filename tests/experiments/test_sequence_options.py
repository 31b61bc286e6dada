"""Presets equal the paper's settings; options survive a file and a command line."""

from dataclasses import replace

import pytest
import tyro

from fastweights.cores import CORES
from fastweights.experiments.learning_cells import flags
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.presets import paper, presets_of, sequence_preset, small
from fastweights.experiments.sequences.table import setting_label
from fastweights.tasks import TASKS, CodeExecution, ListOps

OF_EACH_COMMAND = [TASKS[name] for name in ("code_execution", "list_ops", "parity", "s3")]
EVERY = [
    (name, core, task) for task in OF_EACH_COMMAND for name in presets_of(task) for core in CORES
]


@pytest.mark.parametrize(("name", "core", "task"), EVERY)
def test_every_preset_builds_every_core_and_survives_a_file(name, core, task):
    options = sequence_preset(name, core, task())
    assert options.build().output.out_features == len(task().answers)
    assert SequenceOptions.from_dict(options.to_dict()) == options


def test_the_papers_settings():
    task = CodeExecution(variables=5)
    delta_net, lstm = paper("delta_net", task), paper("lstm", task)
    parameters = [sum(p.numel() for p in o.build().parameters()) for o in (delta_net, lstm)]
    assert parameters == [3_184_154, 405_018]
    assert (delta_net.trainer.learning_rate, lstm.trainer.learning_rate) == (3e-4, 3e-3)
    assert (delta_net.trainer.clip, lstm.trainer.clip) == (0, 0.1)
    assert (delta_net.core_dropout, lstm.dropout) == (0.1, 0.1)
    assert {(o.trainer.batch_size, o.trainer.epochs) for o in (delta_net, lstm)} == {(64, 200)}
    assert delta_net.sizes == {"train": 10_000, "valid": 1_000, "test": 1_000}
    delta_rnn = paper("delta_rnn", task).build()
    assert round(sum(p.numel() for p in delta_rnn.parameters()) / 1e6, 1) == 3.7


@pytest.mark.parametrize("preset", [paper, small])
def test_feature_maps_are_those_of_the_published_code(preset):
    def maps(core):
        options = preset(core, CodeExecution())
        return options.core_feature_map, options.core_recurrent_feature_map

    assert maps("lt") == ("elu", None)
    assert maps("delta_rnn") == maps("delta_lstm") == ("elu_sum", "softmax")
    assert maps("delta_delta") == maps("delta_mlp") == ("elu_sum", None)
    assert maps("rdn") == (None, None)


def test_small_is_the_same_question_with_shorter_sequences():
    for variables, fewer in ((5, 3), (3, 2), (1, 1)):
        task = CodeExecution(variables=variables)
        assert small("rdn", task).task == CodeExecution(variables=fewer, statements=25)
    assert small("rdn", ListOps(depth=10)).task == ListOps(depth=5)
    fewer = CodeExecution(variables=2, statements=25)
    assert setting_label("variables=3", fewer) == "variables=3 (here variables=2, statements=25)"
    assert setting_label("variables=5", CodeExecution(variables=5)) == "variables=5"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task_name": "chess"}, "task_name must be one of code_execution, list_ops, parity, aa"),
        ({"task_name": []}, "task_name must be one of"),
        ({"task": {"depth": "deep"}}, "task.depth must be a whole number, not 'deep'"),
        ({"trainer": {"epochs": 1.5}}, "trainer.epochs must be a whole number, not 1.5"),
        ({"trainer": 3}, "trainer. must be names with values, not 3"),
        ({"data": 3}, "data must be a path or nothing, not 3"),
    ],
)
def test_a_file_s_options_are_of_their_kinds(change, says):
    with pytest.raises(ValueError, match=says):
        SequenceOptions.from_dict(paper("rdn", ListOps()).to_dict() | change)


def test_differences_leave_out_where_a_run_computes():
    options = paper("rdn", ListOps())
    changed = SequenceOptions.from_dict(options.to_dict() | {"num_threads": 1, "seed": 4})
    assert differing_learning_options(options, changed) == ["--seed 4 (was 1)"]
    faster = replace(options, trainer=replace(options.trainer, learning_rate=0.5))
    assert differing_learning_options(options, faster) == ["--learning-rate 0.5 (was 0.0003)"]


@pytest.mark.parametrize("core", ["lstm", "rdn", "lt"])
def test_a_command_line_gives_the_same_options_whatever_the_preset(core):
    wanted = small(core, CodeExecution(variables=2, legacy_conditional_assign=True))
    other = paper(core, CodeExecution())
    kind = SequenceOptions[CodeExecution]
    assert tyro.cli(kind, args=flags(wanted), default=other) == wanted
