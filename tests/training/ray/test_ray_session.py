"""A run that starts Ray: it listens on loopback and leaves nothing behind; bad input."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from ray_cluster import LOOPBACK, TOKEN, TestCluster
from ray_processes import below, folder_of, is_running, listening_addresses

from fastweights.evaluation.evaluation_file import evaluations_in
from fastweights.launch import atari
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.training.options import RunOptions
from fastweights.training.ray import session
from fastweights.training.ray.plan import RayPlan
from fastweights.training.replicas import Replicas
from fastweights.training.schedules.plan import Devices

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
ROOT = Path(__file__).parents[3]
SMALL = ("--env", "Catch", "--core", "feedforward", "--num-envs", "4", "--batch-size", "4")
RAY = (*SMALL, "--engine", "ray")
SOON = 20.0  # seconds, on a machine that is also used by others


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a long run in a separate process; return once it has learned something."""
    where = ("--savedir", str(folder), "--xpid", "run", "--num-threads", "1")
    command = [sys.executable, "launch/atari.py", *RAY, "--num-actors", "2", *where]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        run = subprocess.Popen(
            [*command, "--checkpoint-minutes", "0.02", "--unroll-length", "5"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    deadline = time.monotonic() + 90
    while not has_learned(folder / "run") and time.monotonic() < deadline:
        assert run.poll() is None, (folder / "err").read_text()
        time.sleep(0.1)
    assert has_learned(folder / "run"), (folder / "err").read_text()
    return run


def has_learned(run: Path) -> bool:
    return (run / "model.tar").exists() and load_checkpoint(run / "model.tar")["step"] > 0


def assert_gone(folder: Path, processes: list[int]) -> None:
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline and (any(map(is_running, processes)) or folder.exists()):
        time.sleep(0.1)
    assert not list(filter(is_running, processes)) and not folder.exists()


def resume(folder: Path) -> None:
    """Resume the run for a few updates, without Ray."""
    assert load_checkpoint(folder / "run" / "model.tar")["step"] > 0
    steps = read_logs(folder / "run")["step"][-1]  # beyond the checkpoint, after kill -9
    saved = ("--resume", str(folder / "run"), "--engine", "local", "--num-threads", "1")
    command = [sys.executable, "launch/atari.py", *saved]
    run = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while max(read_logs(folder / "run")["step"], default=0) < steps + 100:
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 128 + signal.SIGTERM


@pytest.mark.faults
def test_ctrl_c_saves_and_leaves_nothing(tmp_path):
    run = start(tmp_path)
    folder, processes = folder_of(run.pid), below(run.pid)
    assert len(processes) > 5
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700  # nobody else gets in
    assert listening_addresses([run.pid, *processes]) == {"127.0.0.1"}
    before = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)  # to all processes, as a terminal does
    assert run.wait(SOON) == 130, (tmp_path / "err").read_text()
    assert time.monotonic() - before < SOON
    assert_gone(folder, processes)
    (note,) = (tmp_path / "err").read_text().splitlines()
    assert note.startswith("note: 200,000,000 agent steps take hours")
    assert (
        load_checkpoint(tmp_path / "run" / "model.tar")["step"]
        == read_logs(tmp_path / "run")["step"][-1]
    )
    expected = {"meta.json", "logs.csv", "fields.csv", "checkpoints", "tensorboard", "model.tar"}
    assert {path.name for path in (tmp_path / "run").iterdir()} >= expected
    resume(tmp_path)


@pytest.mark.faults
def test_kill_9_leaves_nothing_and_the_run_goes_on(tmp_path):
    run = start(tmp_path)
    folder, processes = folder_of(run.pid), below(run.pid)
    os.kill(processes[-1], signal.SIGSTOP)
    run.kill()
    run.wait()
    assert_gone(folder, processes)
    resume(tmp_path)


@pytest.mark.faults
def test_sigterm_to_every_process_still_saves(tmp_path):
    """A batch system ends a job like this; Ray must outlive the run, or the run could not save."""
    run = start(tmp_path)
    folder, processes = folder_of(run.pid), below(run.pid)
    for process in processes:
        os.kill(process, signal.SIGTERM)
    steps, deadline = read_logs(tmp_path / "run")["step"][-1], time.monotonic() + SOON
    while read_logs(tmp_path / "run")["step"][-1] < steps + 2000:  # more than was already collected
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    run.terminate()
    assert run.wait(SOON) == 128 + signal.SIGTERM, (tmp_path / "err").read_text()
    assert_gone(folder, processes)
    assert (
        load_checkpoint(tmp_path / "run" / "model.tar")["step"]
        == read_logs(tmp_path / "run")["step"][-1]
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--num-actors", "3"], "--num-envs 4 is not a multiple of --num-actors 3"),
        (["--num-actors", "0"], "--num-actors must be at least 1"),
        (["--actor-cpus", "-1"], "--actor-cpus must be at least 0"),
        (["--actor-cpus", "inf"], "--actor-cpus must be finite, not inf"),
        (["--num-actors", "2", "--actor-gpus", "100"], "GPUs here"),
        (["--ray-address", "nowhere"], "--ray-address takes auto or host:port"),
        (["--ray-address", "ray://host:10001"], "--ray-address takes auto or host:port"),
        (["--ray-address", "127.0.0.1:1"], "no Ray answers there (Connection refused)"),
    ],
)
def test_bad_input_is_one_line(arguments, says, tmp_path, capsys):
    assert says in error_of([*RAY, *arguments], tmp_path, capsys)


def test_gpus_are_shared_with_the_other_learners_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    options = RunOptions(engine="ray", num_actors=16, actor_gpus=1.0)
    first = Replicas(count=4, local_count=4)
    with pytest.raises(ValueError, match="for each of 16 actors exceeds the 4 GPUs here"):
        RayPlan(options, first, Devices(torch.device("cuda"), torch.device("cpu")))


def test_without_ray_it_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert "pip install -e '.[ray]'" in error_of(RAY, tmp_path, capsys)


@pytest.mark.parametrize(
    ("answer", "patience", "says"),
    [(b"", 0.2, "timed out"), (b"SSH-2.0-x\r\n", 60.0, "another")],
)
def test_a_server_that_is_not_ray_is_recognised(
    answer, patience, says, tmp_path, capsys, monkeypatch
):
    """Ray would try forever."""
    monkeypatch.setattr(session, "CONNECT_SECONDS", patience)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(answer)
                done.wait(120)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert says in error_of([*RAY, "--ray-address", address], tmp_path, capsys)
        done.set()
        thread.join()


def error_of(arguments, folder: Path, capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        atari.main(["--savedir", str(folder), *arguments])
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    assert not list(folder.iterdir())
    return line


def test_auto_is_the_address_in_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match=r"--ray-address 127.0.0.1:1: no Ray answers there"):
        session.Session("auto")


@pytest.mark.faults
def test_auto_joins_the_cluster_that_the_environment_names(tmp_path, monkeypatch):
    where = ("--savedir", str(tmp_path), "--xpid", "run", "--ray-address", "auto")
    environment = os.environ | TOKEN | LOOPBACK | {"PYTHONPATH": str(ROOT)}
    with TestCluster(num_cpus=3) as cluster:
        run = subprocess.run(
            [sys.executable, "launch/atari.py", *RAY, *where, "--total-steps", "1600"],
            cwd=ROOT,
            env=environment | {"RAY_ADDRESS": cluster.address},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert run.returncode == 0, run.stderr
    assert load_checkpoint(tmp_path / "run" / "model.tar")["step"] == 1600


@pytest.mark.faults
def test_a_local_run_goes_on_in_ray_with_test_games_and_a_profile(tmp_path):
    total, every = 20_000, 4_000
    where = ("--savedir", str(tmp_path), "--xpid", "run", "--unroll-length", "10")
    tests = ("--evaluate-every", str(every), "--evaluate-episodes", "2", "--num-threads", "1")
    ray = ("--engine", "ray", "--num-actors", "2", "--profile")
    command = [sys.executable, "launch/atari.py"]
    local = subprocess.Popen(
        [*command, *SMALL, *where, *tests, "--total-steps", str(total)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "logs.csv").exists() or not read_logs(tmp_path / "run")["step"]:
        assert local.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    local.terminate()
    assert local.wait(30) == 128 + signal.SIGTERM
    run = subprocess.run(
        [*command, "--resume", str(tmp_path / "run"), *ray],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert read_logs(tmp_path / "run")["step"] == list(range(40, total + 1, 40))
    tested = {evaluation.agent_steps for evaluation in evaluations_in(tmp_path / "run").values()}
    assert tested >= set(range(every, total + 1, every))
    assert (tmp_path / "run" / "profile.txt").stat().st_size > 0
