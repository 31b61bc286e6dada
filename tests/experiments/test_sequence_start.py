"""Before it learns, a run of a sequence task has a checkpoint on disk, or nothing at all."""

import signal
from pathlib import Path

import pytest
import torch
from forks import Program
from test_sequence_run import LISTS, train

from fastweights.experiments.sequences.data import sequences_of
from fastweights.host.stopping import Interrupted
from fastweights.launch import list_ops
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert train(folder, "a") == 0
    return folder / "a"


TOO_SMALL = """
import resource, sys
from fastweights.launch import list_ops
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
list_ops.main(sys.argv[1:])
"""


def test_a_first_checkpoint_that_does_not_fit_ends_the_run_before_it_learns(finished, tmp_path):
    (drawn,) = (finished.parent / "data").iterdir()
    where = ("--savedir", tmp_path, "--xpid", "a", "--data", drawn, "--core-width", 64)
    done = Program(TOO_SMALL, *LISTS, *where).end()
    assert done.returncode == 2 and not done.stdout
    assert "step_000000000000.pt: File too large; the run has no other" in done.stderr
    *notes, line = done.stderr.splitlines()
    assert line.startswith("error: ") and all("no C++ compiler" in note for note in notes)
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_stopped_before_its_first_update_goes_on(finished, tmp_path, monkeypatch):
    def stop(*given) -> None:
        raise Interrupted(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.learning.Learning._train", stop)
        assert train(tmp_path, "a") == 130
    assert load_checkpoint(tmp_path / "a" / "model.tar")["step"] == 0
    assert list_ops.main(["--resume", str(tmp_path / "a"), "--num-threads", "1"]) == 0
    assert read_logs(tmp_path / "a")["total_loss"] == read_logs(finished)["total_loss"]


def test_it_computes_without_tf32_and_restores_it(tmp_path, monkeypatch):
    cudnn, seen = torch.backends.cudnn, []
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    monkeypatch.setattr(
        "fastweights.experiments.sequences.run.sequences_of",
        lambda options: seen.append(cudnn.allow_tf32) or sequences_of(options),
    )
    assert train(tmp_path, "a") == 0
    assert seen == [False] and cudnn.allow_tf32
