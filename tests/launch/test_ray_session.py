"""A run with a Ray of its own: on loopback, gone with the run; and what a person gets wrong."""

import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from ray_processes import listening_addresses, session_of

from launch import atari, ray_session
from launch.checkpoints import load
from launch.log_table import read_logs
from launch.ray_guard import marked

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.xdist_group("ray"),
]
ROOT = Path(__file__).parents[2]
SMALL = ("--env", "Catch", "--core", "feedforward", "--num-envs", "4", "--batch-size", "4")
RAY = (*SMALL, "--engine", "ray")
SOON = 20.0  # seconds, on a machine that others use too


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A long run in a process of its own; returns once it has learned something."""
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
    while not (folder / "run" / "model.tar").exists() and time.monotonic() < deadline:
        assert run.poll() is None, (folder / "err").read_text()
        time.sleep(0.1)
    assert (folder / "run" / "model.tar").exists(), (folder / "err").read_text()
    return run


def assert_gone(folder: str) -> None:
    deadline = time.monotonic() + SOON
    while (marked(folder) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not marked(folder) and not Path(folder).exists()


def resume(folder: Path) -> None:
    """A little further, without Ray."""
    steps = load(folder / "run" / "model.tar")["step"]
    assert steps > 0
    saved = ("--resume", str(folder / "run"), "--engine", "local", "--num-threads", "1")
    command = [sys.executable, "launch/atari.py", *saved]
    run = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while max(read_logs(folder / "run")["step"], default=0) < steps + 100:
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 128 + signal.SIGTERM


def test_ctrl_c_saves_and_leaves_nothing(tmp_path):
    run = start(tmp_path)
    folder, processes = session_of(run.pid)
    assert len(processes) > 5
    assert listening_addresses([run.pid, *processes]) == {"127.0.0.1"}
    before = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does, to everyone
    assert run.wait(SOON) == 130, (tmp_path / "err").read_text()
    assert time.monotonic() - before < SOON
    assert_gone(folder)
    assert (tmp_path / "err").read_text() == ""
    assert load(tmp_path / "run" / "model.tar")["step"] == read_logs(tmp_path / "run")["step"][-1]
    expected = {"meta.json", "logs.csv", "fields.csv", "checkpoints", "tensorboard", "model.tar"}
    assert {path.name for path in (tmp_path / "run").iterdir()} >= expected
    resume(tmp_path)


@pytest.mark.faults
def test_kill_9_leaves_nothing_and_the_run_goes_on(tmp_path):
    run = start(tmp_path)
    folder, processes = session_of(run.pid)
    os.kill(processes[-1], signal.SIGSTOP)
    run.kill()
    run.wait()
    assert_gone(folder)
    resume(tmp_path)


@pytest.mark.faults
def test_sigterm_to_every_process_still_saves(tmp_path):
    """As a batch system ends a job: Ray's own processes may be gone before the run is."""
    run = start(tmp_path)
    folder, processes = session_of(run.pid)
    for process in (run.pid, *processes):
        os.kill(process, signal.SIGTERM)
    assert run.wait(SOON) == 128 + signal.SIGTERM, (tmp_path / "err").read_text()
    assert_gone(folder)
    assert load(tmp_path / "run" / "model.tar")["step"] == read_logs(tmp_path / "run")["step"][-1]


@pytest.fixture(scope="module")
def silent():
    """A port at which somebody listens who never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--num-actors", "3"], "--num-envs 4 is not a multiple of --num-actors 3"),
        (["--num-actors", "0"], "--num-actors must be at least 1"),
        (["--schedule", "lockstep"], "--schedule and --actor-device belong to --engine local"),
        (["--actor-device", "cpu"], "belong to --engine local"),
        (["--actor-cpus", "-1"], "--actor-cpus must be at least 0"),
        (["--num-actors", "2", "--actor-gpus", "100"], "GPUs here"),
        (["--ray-address", "nowhere"], "--ray-address takes auto or host:port"),
        (["--ray-address", "ray://host:10001"], "--ray-address takes auto or host:port"),
        (["--ray-address", "127.0.0.1:1"], "nobody answers there"),
    ],
)
def test_bad_input_is_one_line(arguments, says, tmp_path, capsys):
    assert says in error_of([*RAY, *arguments], tmp_path, capsys)


def test_without_ray_it_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ray_session, "find_spec", lambda name: None)
    assert "pip install 'fastweights[ray]'" in error_of(RAY, tmp_path, capsys)


@pytest.mark.faults
def test_who_listens_but_is_no_cluster_is_found_out(silent, tmp_path):
    """In a process of its own: Ray may end it."""
    command = [sys.executable, "launch/atari.py", *RAY, "--ray-address", silent]
    before = time.monotonic()
    done = subprocess.run(
        [*command, "--savedir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot join the Ray cluster" in done.stderr
    assert time.monotonic() - before < 60
    assert not list(tmp_path.iterdir())


def error_of(arguments, folder: Path, capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        atari.main(["--savedir", str(folder), *arguments])
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    assert not list(folder.iterdir())
    return line
