"""A resumed run has the sequences that it began with; token files can change meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import StoppingDisplay
from test_sequence_run import error_of, train
from test_sequence_table import tiny

from fastweights.experiments.sequences.data import FILE, digest_of
from fastweights.experiments.sequences.figures import figures
from fastweights.experiments.sequences.presets import SEQUENCE_PRESETS
from fastweights.experiments.sequences.run import run_sequence_task
from fastweights.experiments.sequences.table import SequenceTableOptions, make_sequence_table
from fastweights.experiments.token_files import read_splits, write_splits
from fastweights.launch import list_ops
from fastweights.records.checkpoints import load_checkpoint, save_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.tasks import ListOps
from fastweights.tasks.sequences import draw_splits

pytestmark = pytest.mark.usefixtures("forked_runs")

TASK = ListOps(depth=1)
SIZES = {"train": 40, "valid": 8, "test": 8}


def draw(files: Path, seed: int = 1, **sizes: int) -> None:
    write_splits(files, TASK, draw_splits(TASK, SIZES | sizes, seed))


@pytest.fixture
def stopped(tmp_path, monkeypatch) -> Path:
    """Return a run that was stopped after an update; its token files are in `files`, beside it."""
    draw(tmp_path / "files")
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
        assert train(tmp_path, "a", "--files", tmp_path / "files") == 130
    return tmp_path / "a"


def without_digests(run: Path) -> None:
    """Make the run's checkpoints those of an older version."""
    for path in (run / "model.tar", *(run / "checkpoints").iterdir()):
        payload = load_checkpoint(path)
        del payload["sequences"]
        save_checkpoint(payload, path)


def resume(run: Path) -> list[str]:
    return ["--resume", str(run), "--num-threads", "1"]


@pytest.mark.parametrize("is_older", [False, True])
def test_a_run_on_the_same_files_goes_on(is_older, stopped):
    if is_older:
        without_digests(stopped)
    assert list_ops.main(resume(stopped)) == 0
    files = stopped.parent / "files"
    assert train(stopped.parent, "whole", "--files", files) == 0
    losses = [read_logs(run)["total_loss"] for run in (stopped, stopped.parent / "whole")]
    assert losses[0] == losses[1]
    newest = load_checkpoint(stopped / "model.tar")
    assert newest["sequences"] == digest_of(read_splits(files, TASK))


@pytest.mark.parametrize(
    "change",
    [
        {"train": 8},  # one batch: the run has been stopped after it
        {"seed": 2},  # as many sequences
        {"test": 9},
    ],
    ids=str,
)
def test_a_run_on_other_files_is_refused(change, stopped, capsys):
    files = stopped.parent / "files"
    draw(files, **change)
    said = error_of(list_ops.main, resume(stopped), capsys)
    assert f"the sequences in --files {files} differ from those that {stopped} began with" in said
    assert load_checkpoint(stopped / "model.tar")["step"] == 1


def test_an_older_run_on_too_few_sequences_ends_at_once(stopped, capsys):
    without_digests(stopped)
    draw(stopped.parent / "files", train=8)
    said = error_of(list_ops.main, resume(stopped), capsys)
    assert "stopped after 1 batches of an epoch, which now has only 1: restore the run's" in said


def test_a_table_refuses_to_resume_a_run_on_other_sequences(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SEQUENCE_PRESETS, "tiny", tiny)
    asked = SequenceTableOptions(
        seeds=(1,), runs=tmp_path, only=("lstm",), settings=("depth=10",), jobs=1
    )
    changes = {"savedir": tmp_path / "tiny", "data": tmp_path / "drawn"}
    options = figures("list_ops", 2, "tiny", None, changes)[0].run(1).options
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
        assert run_sequence_task(replace(options, num_threads=1)) == 130
    drawn = tmp_path / "drawn" / FILE
    payload = load_checkpoint(drawn)
    payload["valid"]["tokens"] = payload["valid"]["tokens"].flip(0)
    save_checkpoint(payload, drawn)
    assert make_sequence_table("list_ops", 2, "tiny", asked, {"data": tmp_path / "drawn"}) == 2
    said = capsys.readouterr().err
    assert f"{drawn} differ from those that" in said


def test_a_digest_is_of_every_token_target_and_length():
    splits = draw_splits(TASK, SIZES, 1)
    changed = [
        splits | {name: splits[name]._replace(**{part: 1 - getattr(splits[name], part)})}
        for name in splits
        for part in ("tokens", "targets", "lengths")
    ]
    assert len({digest_of(each) for each in (splits, *changed)}) == 10
    assert digest_of(draw_splits(TASK, SIZES, 1)) == digest_of(splits)


def test_statistics_are_of_the_run_s_own_sequences_and_stand_alone(tmp_path, capsys):
    small = ["--preset", "small", "--train-size", "8", "--valid-size", "4", "--test-size", "4"]
    small += ["--epochs", "1", "--core", "lstm", "--core-width", "8", "--num-threads", "1"]
    assert list_ops.main([*small, "--savedir", str(tmp_path), "--xpid", "a"]) == 0
    run = str(tmp_path / "a")
    assert list_ops.main(["--resume", run, "--statistics"]) == 0  # also of a finished run
    capsys.readouterr()
    for given, says in (
        (["--resume", run, "--statistics", "--train-size", "9"], "--train-size"),
        (["--statistics", "--export", str(tmp_path / "b")], "cannot be used together"),
    ):
        with pytest.raises(SystemExit, match="2"):
            list_ops.main(given)
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1 and says in said
    assert not (tmp_path / "b").exists()
