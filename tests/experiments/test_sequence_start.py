"""Before it learns, a run of a sequence task has a checkpoint on disk, or nothing at all."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forks import Program
from test_sequence_run import LISTS, train

from fastweights.experiments.learning import RESULT_FILE
from fastweights.experiments.sequences.data import sequences_of
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.host.errors import UserError
from fastweights.host.stopping import Interrupted
from fastweights.launch import list_ops
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.tasks.formal_languages.regular.parity import Parity
from tests.launch.test_bad_input import error_of


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


def test_sequences_of_a_task_that_was_changed_since_are_refused(tmp_path, monkeypatch):
    preset = sequence_preset("small", "lstm", Parity())
    options = replace(preset, data=tmp_path, train_size=9, valid_size=4, test_size=4)
    before = sequences_of(options)["train"]
    assert torch.equal(sequences_of(options)["train"].targets, before.targets)
    step = Parity.step
    monkeypatch.setattr(Parity, "step", lambda self, *given: (step(self, *given)[0], "F"))
    with pytest.raises(UserError, match="another version of parity: delete it"):
        sequences_of(options)


def test_a_resumed_run_stays_in_its_folder(finished, tmp_path, capsys):
    for words in (("--xpid", "b"), ("--savedir", tmp_path)):
        said = error_of(list_ops.main, ["--resume", finished, *words], capsys)
        assert f"stays in its folder, {finished}: leave --savedir and --xpid out" in said
    assert not list(tmp_path.iterdir())


def test_a_finished_run_without_its_log_is_measured_again(finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "a")
    for name in (RESULT_FILE, "logs.csv", "fields.csv"):
        (copy / name).unlink()
    assert list_ops.main(["--resume", str(copy), "--num-threads", "1"]) == 0
    before, after = (json.loads((run / RESULT_FILE).read_text()) for run in (finished, copy))
    assert (after["test"], after["seconds"]) == (before["test"], 0)
