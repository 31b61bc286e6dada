"""The benchmark of sequence models, on a tiny one: its rows, its ratios, bad input."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.sequences import LEFT_OUT, TorchsOwn, contenders, main, parser, rows
from fastweights.cores import CORES, build_core
from fastweights.cores.fast_weight_core import FastWeightCore
from fastweights.experiments.sequences.presets import SEQUENCE_PRESETS, small
from fastweights.tasks.code_execution import CodeExecution
from fastweights.tasks.sequences import draw_splits

PATIENT = ("--seconds", "1e6")  # long enough to build kernels first


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny(core, task):
        options = small(core, replace(task, statements=16))
        return replace(options, core_width=8, core_feedforward=8, core_layers=1)

    monkeypatch.setitem(SEQUENCE_PRESETS, "small", tiny)
    # It would change the whole process.
    monkeypatch.setattr("benchmarks.sequences.tune_allocator", lambda: None)


def test_every_model_has_a_row_and_memories_one_more_time(tmp_path, capsys):
    path = tmp_path / "sequences.json"
    main(["--cores", "delta_net", "transformer", "--rounds", "2", *PATIENT, "--json", str(path)])
    memory, transformer = json.loads(path.read_text())["rows"]
    assert {name: len(times) for name, times in memory["seconds"].items()} == {
        "auto": 2,
        "reference": 2,
        "left out": 2,
    }
    assert list(transformer["seconds"]) == ["auto"] and transformer["times_transformer"] == 1
    assert memory["parameters"] > 0 and memory["times_reference"] > 0
    assert memory["times_possible"] > 0 and transformer["times_possible"] is None
    assert "times reference" in capsys.readouterr().out.replace("\n", " ")


def test_pytorchs_own_network_computes_the_same_and_stands_beside_a_core(tmp_path):
    path = tmp_path / "sequences.json"
    given = ["--task", "parity", "--cores", "lstm", "--rounds", "1", *PATIENT]
    main([*given, "--json", str(path)])
    (lstm,) = json.loads(path.read_text())["rows"]
    assert set(lstm["seconds"]) == {"auto", "reference", "torch"} and lstm["times_torch"] > 0
    core = build_core("lstm", 5, width=7)
    own = TorchsOwn(core, torch.nn.LSTM)
    for name, tensor in core.cell.state_dict().items():
        getattr(own.network, f"{name}_l0").data.copy_(tensor)
    x = torch.randn(6, 3, 5)
    torch.testing.assert_close(own.unroll(x, None, x)[0], core(x)[0])


@pytest.mark.parametrize("core", [name for name, kind in CORES.items() if kind.has_fast_weights])
def test_without_its_recurrence_a_memory_still_makes_all_inputs_of_it(core, monkeypatch):
    def refuse(*call: object) -> None:
        raise AssertionError("the recurrence ran")

    def watched(memory: FastWeightCore, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs.extend(program(memory, x))
        for each in inputs:
            each.retain_grad()
        return tuple(inputs)

    chosen, inputs = SEQUENCE_PRESETS["small"](core, CodeExecution()), []
    sequences = draw_splits(chosen.task, {"train": 2}, seed=1)["train"]
    runs, _ = contenders(parser().parse_args(["--cores", core]), sequences)
    monkeypatch.setattr(FastWeightCore, "unroll", refuse)
    (memory,) = (
        m for m in runs[core, LEFT_OUT].args[0].model.modules() if isinstance(m, FastWeightCore)
    )
    program = type(memory).program
    monkeypatch.setattr(type(memory), "program", watched)
    runs[core, LEFT_OUT]()
    assert inputs and all(each.grad is not None for each in inputs)
    assert sum(bool(each.grad.any()) for each in inputs) == 1
    with pytest.raises(AssertionError, match="the recurrence ran"):
        runs[core, "auto"]()


def test_ratios_are_of_the_same_round():
    """The ratios of medians would be 10 and 2."""
    samples = {
        ("rdn", "auto"): [0.1, 0.2, 0.4],
        ("rdn", "reference"): [2.0, 8.0, 1.0],
        ("rdn", "left out"): [0.05, 0.1, 0.1],
        ("transformer", "auto"): [0.3, 0.4, 1.6],
    }
    models = [{"core": core, "parameters": 1} for core in ("rdn", "transformer")]
    rdn, transformer = rows(models, samples, tokens=100, strings=4)
    assert (rdn["tokens_per_second"], rdn["sequences_per_second"]) == (500, 20)
    assert (rdn["times_reference"], rdn["times_transformer"]) == pytest.approx((20, 3))
    assert rdn["times_possible"] == pytest.approx(40)
    assert rdn["published_times_transformer"] == 1.06
    assert transformer["times_reference"] is None
