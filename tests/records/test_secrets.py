"""Run folders may be shared: they contain only listed environment variables."""

import json
from pathlib import Path

import pytest
from small_runs import train

from fastweights.host import provenance
from fastweights.launch import evaluate, report
from tests.experiments.test_sequence_run import train as train_sequences

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "hunter-aws",
    "WANDB_API_KEY": "hunter-wandb",
    "HTTPS_PROXY": "http://user:hunter-proxy@127.0.0.1:9",
    "GIT_ASKPASS": "/bin/hunter-git",
    "SLURM_JWT": "hunter-slurm",
    "OMP_NUM_THREADS_TOKEN": "hunter-almost-on-the-list",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("sys.argv", ["launch/atari.py", "--seed", "1"])


def assert_nothing_leaked(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        content = path.read_bytes()
        assert b"hunter" not in content and b"WANDB" not in content, path


def test_an_agent_s_run_keeps_no_secret(tmp_path):
    assert train(tmp_path, "a", "--total-steps", 40, "--evaluate-episodes", 2) == 0
    assert evaluate.main([str(tmp_path / "a"), "--export", str(tmp_path / "agent")]) == 0
    assert report.main([str(tmp_path / "a")]) == 0
    assert_nothing_leaked(tmp_path)
    meta = json.loads((tmp_path / "a" / "meta.json").read_text())
    assert meta["env"] == {"OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "77"} | {
        name: value for name, value in meta["env"].items() if name in provenance._ENVIRONMENT
    }
    assert meta["command"].endswith(" launch/atari.py --seed 1")


def test_a_sequence_run_keeps_no_secret(tmp_path):
    assert train_sequences(tmp_path, "a") == 0
    assert_nothing_leaked(tmp_path)
    meta = json.loads((tmp_path / "a" / "meta.json").read_text())
    assert meta["env"]["SLURM_JOB_ID"] == "77" and set(SECRETS).isdisjoint(meta["env"])


def test_the_list_names_nothing_that_holds_a_secret():
    hints = ("KEY", "TOKEN", "SECRET", "PASS", "PROXY", "JWT", "AUTH", "CREDENTIAL", "URL")
    names = [*provenance._ENVIRONMENT, *provenance._SLURM]
    assert not [name for name in names if any(hint in name for hint in hints)]


def test_the_revision_has_no_address():
    assert set(provenance.code_revision() or ()) <= {"commit", "branch", "is_dirty"}
