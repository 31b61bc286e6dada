"""Run folders: one run and one writer each, in TorchBeast's layout."""

import datetime
import errno
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fastweights.host import provenance
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import RunFolder, RunFolderError, claim_xpid, read_meta

ROOT = Path(__file__).parents[2]


def start(script: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_meta_has_torchbeasts_keys_and_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JWT", "hunter3")
    run = RunFolder.create(tmp_path, "a", {"env": "Qbert", "unroll_length": 50})
    text = (tmp_path / "a" / "meta.json").read_text()
    meta = json.loads(text)
    assert {"args", "date_start", "date_end", "env", "git", "slurm", "successful", "xpid"} <= set(
        meta
    )
    assert meta["args"] == {"env": "Qbert", "unroll_length": 50} and meta["xpid"] == "a"
    assert meta["env"]["OMP_NUM_THREADS"] == "2" and meta["slurm"] == {"job_id": "77"}
    assert "hunter" not in text
    assert meta["successful"] is False and meta["date_end"] is None
    assert set(meta["versions"]) == {"python", "torch", "numpy", "gymnasium", "ale-py"}
    assert meta["machine"]["cores"] >= 1 and meta["command"]
    run.finish(successful=True)
    meta = read_meta(run.path)
    assert meta["successful"] is True
    datetime.datetime.strptime(meta["date_end"], "%Y-%m-%d %H:%M:%S.%f")


def git_in(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_commit_does_not_change_the_code_that_runs(tmp_path, monkeypatch):
    git = partial(git_in, tmp_path)
    monkeypatch.setattr(provenance, "_REPOSITORY", tmp_path)
    git("init")
    git("commit", "--allow-empty", "-m", "First")
    provenance.code_revision.cache_clear()
    try:
        begun = provenance.code_revision()
        git("commit", "--allow-empty", "-m", "Second")
        assert provenance.code_revision() == begun
        assert begun["commit"] == git("rev-parse", "HEAD~1")
    finally:
        provenance.code_revision.cache_clear()


def test_git_revision_is_this_repositorys(tmp_path):
    git = partial(git_in, tmp_path)
    assert provenance.git_revision(tmp_path) is None
    git("init", "-b", "trunk")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "First")
    clean = {"commit": git("rev-parse", "HEAD"), "branch": "trunk", "is_dirty": False}
    assert provenance.git_revision(tmp_path) == clean
    (tmp_path / "file").write_text("2")
    assert provenance.git_revision(tmp_path) == clean | {"is_dirty": True}
    (tmp_path / "inside").mkdir()
    assert provenance.git_revision(tmp_path / "inside") is None


def test_latest_points_to_the_newest(tmp_path):
    for xpid in ("a", "b"):
        RunFolder.create(tmp_path, xpid, {}).finish()
        assert (tmp_path / "latest").readlink() == Path(xpid)
    resumed = RunFolder.open(tmp_path / "latest")
    assert resumed.path == (tmp_path / "b").resolve() and resumed.xpid == "b"
    resumed.close()
    RunFolder.open(tmp_path / "a").close()
    assert (tmp_path / "latest").readlink() == Path("a")


def test_somebodys_folder_called_latest_stays(tmp_path):
    (tmp_path / "latest").mkdir()
    RunFolder.create(tmp_path, "a", {}).finish()
    assert not (tmp_path / "latest").is_symlink()


def test_without_symlinks_a_run_goes_on(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    RunFolder.create(tmp_path, "a", {}).finish()
    assert not (tmp_path / "latest").exists()


def test_create_refuses_a_folder_that_holds_a_run(tmp_path):
    RunFolder.create(tmp_path, "a", {}).finish()
    before = (tmp_path / "a" / "meta.json").read_bytes()
    with pytest.raises(RunFolderError, match=r"--resume .* another --xpid"):
        RunFolder.create(tmp_path, "a", {})
    assert (tmp_path / "a" / "meta.json").read_bytes() == before
    RunFolder.open(tmp_path / "a").close()  # the refusal must leave no lock


@pytest.mark.parametrize("xpid", ["", " ", ".", "..", "latest", "a/b"])
def test_an_xpid_names_a_folder(tmp_path, xpid):
    with pytest.raises(RunFolderError, match="--xpid"):
        RunFolder.create(tmp_path, xpid, {})
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, a read-only folder")
def test_unwritable_places_are_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for savedir in (Path("/proc"), tmp_path / "file", tmp_path / ("long" * 100)):
        with pytest.raises(RunFolderError, match="cannot write") as caught:
            RunFolder.create(savedir, "a", {})
        assert "\n" not in str(caught.value) and str(savedir) in str(caught.value)


def test_open_without_a_run_is_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunFolderError, match="holds no run"):
            RunFolder.open(path)
    for damage in ("{", "[]", ""):
        (tmp_path / "meta.json").write_text(damage)
        with pytest.raises(RunFolderError, match="is damaged"):
            RunFolder.open(tmp_path)


def test_a_resume_is_noted_and_the_start_kept(tmp_path):
    run = RunFolder.create(tmp_path, "a", {"seed": 1, "precision": "float32"})
    begin = run.meta["date_start"]
    run.log({"step": 100})
    run.finish()
    again = RunFolder.open(run.path, {"seed": 1, "precision": "bfloat16"})
    meta = read_meta(run.path)
    assert meta["date_start"] == begin
    assert meta["args"] == {"seed": 1, "precision": "float32"}
    assert meta["resumed"][0]["args"] == {"precision": "bfloat16"}
    assert meta["successful"] is False and len(meta["resumed"]) == 1
    again.log({"step": 200})
    again.rewind(150)
    again.log({"step": 160})
    again.close()
    assert read_logs(run.path)["_tick"] == [0, 1]
    assert read_logs(run.path)["step"] == [100, 160]


HOLD = """
import os, sys, time
from pathlib import Path
from fastweights.records.run_folder import RunFolder
run = RunFolder.create(Path(sys.argv[1]), "a", {})
begun, begin = os.pipe()
if sys.argv[2] == "fork" and os.fork() == 0:  # a worker that outlives its parent
    os.write(begin, b"1")
    time.sleep(3)
    os._exit(0)
if sys.argv[2] == "fork":
    os.read(begun, 1)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_one_writer_at_a_time_and_kill_9_frees_the_folder(tmp_path, how):
    holder = start(HOLD, tmp_path, how)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=rf"being written by process {holder.pid} on "):
            RunFolder.open(tmp_path / "a")
        with pytest.raises(RunFolderError, match="being written"):
            RunFolder.create(tmp_path, "a", {})
        read_meta(tmp_path / "a")  # readers need no lock
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    RunFolder.open(tmp_path / "a").finish()


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_files_cannot_be_locked_a_run_goes_on_without(tmp_path, monkeypatch, reason):
    """Some network file systems have no locks; no file that looks like a lock may remain."""

    def refused(descriptor, operation):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", refused)
    RunFolder.create(tmp_path, "a", {}).finish()
    RunFolder.open(tmp_path / "a").finish()
    monkeypatch.undo()
    RunFolder.open(tmp_path / "a").finish()


def test_the_claim_xpid_is_a_unique_file_name(tmp_path):
    now = datetime.datetime(2026, 1, 2, 3, 4, 5)
    assert claim_xpid("Qbert", "rdn", tmp_path, now) == "Qbert-rdn-20260102-030405"
    assert claim_xpid("Qbert", "rdn", tmp_path, now) == "Qbert-rdn-20260102-030405-2"
    assert {path.name for path in tmp_path.iterdir()} == {
        "Qbert-rdn-20260102-030405",
        "Qbert-rdn-20260102-030405-2",
    }
    assert claim_xpid("ALE/Pong-v5", "lstm", tmp_path, now) == "ALE-Pong-v5-lstm-20260102-030405"
    assert "/" not in claim_xpid("../my.module:Game-v0", "lt", tmp_path)


def test_a_run_that_fails_to_start_keeps_earlier_files(tmp_path):
    mine = {"notes.txt", "hashes.csv", "tensorboard"}  # also under names that a run uses
    (tmp_path / "a" / "tensorboard").mkdir(parents=True)
    for name in ("notes.txt", "hashes.csv", "tensorboard/events"):
        (tmp_path / "a" / name).write_text("mine")
    RunFolder.create(tmp_path, "before", {}).close()
    for xpid in ("a", "b"):
        RunFolder.create(tmp_path, xpid, {}).discard()
        assert (tmp_path / "latest").resolve() == tmp_path / "before"
    assert {path.name for path in (tmp_path / "a").iterdir()} == mine
    assert (tmp_path / "a" / "tensorboard" / "events").read_text() == "mine"
    assert not (tmp_path / "b").exists()
    RunFolder.open(tmp_path / "before").discard()
    assert (tmp_path / "before" / "meta.json").exists(), "the folder of an earlier run must stay"
