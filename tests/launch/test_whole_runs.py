"""Typical sequences of commands, on each kind of device that is present."""

import math

import pytest
import torch
from small_runs import GROUPS, StoppingDisplay, train

from fastweights.evaluation.evaluation_file import evaluations_in
from fastweights.launch import atari, code_execution, evaluate
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import read_meta

NO_GPU = "torch sees no CUDA device; `-m gpu` shows GPUs"
ON_CUDA = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU),
]
EVERY_DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_CUDA)])
SCHEDULES = {"lockstep": ("--schedule", "lockstep"), "asynchronous": GROUPS}
TINY = ("--core-width", 16, "--core-heads", 2, "--core-layers", 1)
PONG = ("--env", "Pong", "--stem", "resnet", "--unroll-length", 4)
MAZE = ("--env", "TMaze", "--env-options", "corridor=3", "--unroll-length", 8)
STEPS = ("--total-steps", 320)
ON_PICTURES = [
    *(("cpu", "lockstep", "rdn"), ("cpu", "asynchronous", "lstm")),
    *(pytest.param("cuda", s, core, marks=ON_CUDA) for s in SCHEDULES for core in ("rdn", "lstm")),
]


@pytest.mark.parametrize(("device", "schedule", "core"), ON_PICTURES)
def test_a_run_on_pictures_is_stopped_and_goes_on(device, schedule, core, tmp_path, monkeypatch):
    options = (*PONG, "--core", core, "--device", device, *SCHEDULES[schedule], *TINY[:2])
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
    assert train(tmp_path, "run", *options, "--total-steps", 80) == 130
    monkeypatch.undo()
    assert atari.main(["--resume", str(tmp_path / "run")]) == 0
    logs = read_logs(tmp_path / "run")
    assert logs["step"] == [16, 32, 48, 64, 80]
    assert all(map(math.isfinite, logs["total_loss"])) and logs["refused_updates"][-1] == 0
    on_cpu = load_checkpoint(tmp_path / "run" / "model.tar", "cpu")["model_state_dict"]
    assert all(weight.isfinite().all() for weight in on_cpu.values())


@EVERY_DEVICE
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_was_learned_is_played(device, schedule, tmp_path):
    options = (*MAZE, "--core", "delta_rnn", *TINY, "--device", device, *SCHEDULES[schedule])
    assert train(tmp_path, "run", *options, *STEPS) == 0
    for seat in {device, "cpu"}:
        few = ["--episodes", "3", "--repeats", "2", "--no-clip", "--device", seat]
        assert evaluate.main([str(tmp_path / "run"), *few]) == 0
    (played,) = evaluations_in(tmp_path / "run").values()
    assert len(played.episodes) == 6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_acting_step_is_replayed(schedule, tmp_path, monkeypatch):
    """In lockstep the losses are bit-identical with and without a graph."""
    options = (*PONG, "--core", "rdn", *TINY[:2], "--device", "cuda", *SCHEDULES[schedule])
    replay, replays, losses = torch.cuda.CUDAGraph.replay, [], []
    monkeypatch.setattr(
        torch.cuda.CUDAGraph, "replay", lambda graph: replays.append(graph) or replay(graph)
    )
    for how in ("--no-cuda-graphs", "--cuda-graphs"):
        assert not replays
        assert train(tmp_path, how[2:], *options, how, "--total-steps", 80) == 0
        losses.append(read_logs(tmp_path / how[2:])["total_loss"])
    assert len(replays) >= 20 and all(map(math.isfinite, losses[1]))
    assert schedule != "lockstep" or losses[0] == losses[1]


@EVERY_DEVICE
def test_one_device_acts_and_another_learns(device, tmp_path):
    devices = ("--actor-device", "cpu", "--learner-device", device, *GROUPS)
    assert train(tmp_path, "split", *MAZE, "--core", "rdn", *TINY, *devices, *STEPS) == 0
    assert read_logs(tmp_path / "split")["step"][-1] == 320


@EVERY_DEVICE
@pytest.mark.parametrize("core", ["transformer", "delta_lstm"])
def test_a_sequence_task_is_stopped_and_goes_on(device, core, tmp_path, monkeypatch):
    sizes = ("--train-size", 40, "--valid-size", 8, "--test-size", 8, "--batch-size", 8)
    what = ("--preset", "small", "--statements", 4, "--epochs", 2, *sizes, *TINY)
    where = ("--savedir", tmp_path, "--xpid", "run", "--device", device, "--num-threads", 1)
    given = [str(word) for word in ("--core", core, "--core-dropout", 0.1, *what, *where)]
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert code_execution.main(given) == 130
    monkeypatch.undo()
    assert code_execution.main(["--resume", str(tmp_path / "run")]) == 0
    assert read_logs(tmp_path / "run")["step"] == list(range(1, 11))
    assert read_meta(tmp_path / "run")["args"]["device"] == device
