"""`python -m fastweights.kernels`: the errors that it finds, and its exit codes."""

import pytest
import torch

from fastweights.kernels import __main__ as program
from fastweights.kernels import split_map
from fastweights.kernels.machinery import direct_call, dispatch
from fastweights.kernels.machinery.example import Example
from fastweights.kernels.pictures import images as pictures
from fastweights.kernels.registry import OPERATIONS


@pytest.mark.compiler
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 2.0])
def test_wrong_numbers_are_found_whatever_they_are(monkeypatch, wrong):
    run = Example.run_with_gradients

    def spoilt(case: Example) -> dict[str, torch.Tensor]:
        found = run(case)
        if dispatch.requested_backend() == "cpu":
            found["grad k"][0] += wrong
        return found

    monkeypatch.setattr(Example, "run_with_gradients", spoilt)
    good, line = program.self_test(OPERATIONS["delta_rule"], "cpu")
    assert not good and line.startswith("WRONG") and "(grad k)" in line


@pytest.mark.compiler
def test_kernels_that_are_no_recurrences_are_tested_too(monkeypatch):
    right = list(program.self_tests_beside_pytorch())
    assert len(right) == 6 and all(good for _, good, _ in right)
    forward = pictures.forward
    monkeypatch.setattr(pictures, "forward", lambda weight, bias: forward(weight.flip(2), bias))
    good = {name for name, good, _ in program.self_tests_beside_pytorch() if good}
    assert good == {"max_pool", "pixels", "split_map"}
    monkeypatch.setattr(split_map, "_CODES", dict.fromkeys(split_map.MAPS, 3))
    assert ("split_map", False) in {
        (name, good) for name, good, _ in program.self_tests_beside_pytorch()
    }


def test_without_a_compiler_they_are_not_available(monkeypatch):
    monkeypatch.setattr(direct_call, "is_there", lambda *call: False)
    assert {line for *_, line in program.self_tests_beside_pytorch()} == {
        "not available: PyTorch's own kernel runs"
    }


def test_a_backend_that_does_not_exist_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv(dispatch.ENVIRONMENT_VARIABLE, "gpu")
    dispatch._environment.cache_clear()
    try:
        with pytest.raises(SystemExit, match="2"):
            program.main([])
    finally:
        monkeypatch.undo()
        dispatch._environment.cache_clear()
    said = capsys.readouterr()
    assert said.out == ""
    wanted = "error: FASTWEIGHTS_BACKEND: unknown kernel backend 'gpu'; known: auto"
    assert said.err.startswith(wanted)
    assert said.err.count("\n") == 1


def test_an_argument_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main(["--nonsense"])
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("error: unrecognized arguments: --nonsense")


def test_a_machine_without_a_home_is_described(monkeypatch):
    def no_home() -> None:
        raise FileNotFoundError("this user has no home folder: set FASTWEIGHTS_CACHE")

    monkeypatch.setattr(program, "cache_folder", no_home)
    assert any("none: this user has no home" in line for line in program.describe_machine())


@pytest.mark.compiler
@pytest.mark.parametrize("spoilt", [None, "convolve_pool", "delta_rule"])
def test_wrong_numbers_are_the_exit_code(spoilt, monkeypatch, capsys):
    monkeypatch.setattr(program, "OPERATIONS", {"delta_rule": OPERATIONS["delta_rule"]})
    if spoilt == "convolve_pool":
        forward = pictures.forward
        monkeypatch.setattr(pictures, "forward", lambda w, bias: forward(w.flip(2), bias))
    elif spoilt:
        monkeypatch.setattr(program, "TOLERANCE", 0.0)
        monkeypatch.setattr(program, "self_tests_beside_pytorch", lambda device: ())
    assert program.main([]) == (1 if spoilt else 0)
    said = capsys.readouterr().out
    assert ("WRONG" in said) == bool(spoilt)
