"""The commands of sequence tasks: a run, its result, resuming, bad input, data."""

import errno
import json
import multiprocessing
import re
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import StoppingDisplay

from fastweights.experiments.learning import RESULT_FILE
from fastweights.experiments.sequences.data import FILE, sequences_of
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.presets import small
from fastweights.host.profiling import TRACED, WARM_UP
from fastweights.launch import code_execution, list_ops
from fastweights.records.checkpoint_folder import CheckpointFolder
from fastweights.records.checkpoints import load_checkpoint, save_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import read_meta
from fastweights.tasks import ListOps
from fastweights.tasks.train import Trainer

DRAWN = ("--train-size", "40", "--valid-size", "8", "--test-size", "8")
SHORT = ("--preset", "small", "--batch-size", "8", "--epochs", "3", "--num-threads", "1")
SHORT += ("--core-width", "16")
TINY = (*DRAWN, *SHORT)
LISTS = (*TINY, "--depth", "1", "--core", "lstm", "--dropout", "0.2")


def train(folder: Path, xpid: str, *options: object, main=list_ops.main) -> int:
    where = ("--savedir", folder, "--xpid", xpid)
    given = LISTS[len(DRAWN) :] if "--files" in options else LISTS
    return main([*map(str, (*given, *where, *options))])


def test_a_run_keeps_its_best_epoch_and_reports_the_test_split(tmp_path, capsys):
    assert train(tmp_path, "a") == 0
    run = tmp_path / "a"
    result = json.loads((run / RESULT_FILE).read_text())
    assert set(result["test"]) == {"loss", "sequence_accuracy", "answer_accuracy"}
    logs = read_logs(run)
    assert logs["step"] == list(range(1, 16))
    scores = [score for score in logs["score"] if score is not None]
    assert len(scores) == 3
    assert load_checkpoint(run / "checkpoints" / "best.pt")["score"] == max(scores)
    assert result["best_epoch"] == scores.index(max(scores)) + 1
    # In ListOps both accuracies are equal.
    assert result["valid"]["sequence_accuracy"] == max(scores)
    assert "% of sequences" in capsys.readouterr().out
    meta = json.loads((run / "meta.json").read_text())
    assert meta["successful"]
    assert meta["network"]["parameters"] == result["parameters"]
    assert meta["network"]["core_options"]["width"] == 16
    assert load_checkpoint(run / "model.tar")["git"] == meta["git"]


def test_profile_says_where_the_time_goes(tmp_path, capsys):
    assert train(tmp_path, "a", "--profile") == 0
    table = (tmp_path / "a" / "profile.txt").read_text().split("\n\n")[0]
    assert table in capsys.readouterr().out
    # Updates after the trace; the third epoch's last update counts, too.
    after = 15 - WARM_UP - TRACED
    for stage, calls in (("gradient", after), ("optimise", after), ("log", after), ("test", 2)):
        assert re.search(rf"^learner +{stage} .* % +{calls} ", table, re.M), (stage, table)
    events = json.loads((tmp_path / "a" / "trace.json").read_text())["traceEvents"]
    assert {"gradient", "aten::mm"} & {event["name"] for event in events} == {
        "gradient",
        "aten::mm",
    }


def test_code_execution_with_a_fast_weight_core(tmp_path):
    options = (*TINY, "--core", "rdn", "--statements", "4", "--core-layers", "1")
    where = ("--savedir", str(tmp_path), "--xpid", "a")
    assert code_execution.main([*options, *where]) == 0
    assert json.loads((tmp_path / "a" / RESULT_FILE).read_text())["epochs"] == 3


def test_a_transformer_attends_to_whole_sequences_unless_told_otherwise(tmp_path):
    options = ("--core", "transformer", "--depth", "2", "--dropout", "0", "--epochs", "1")
    assert train(tmp_path, "a", *options) == 0
    assert train(tmp_path, "b", *options, "--core-window", "4") == 0
    asked = [read_meta(tmp_path / name)["args"] for name in "ab"]
    drawn = sequences_of(SequenceOptions.from_dict(asked[0])).values()
    assert asked[0]["core_window"] == max(int(split.lengths.max()) for split in drawn) > 7
    assert asked[1]["core_window"] == 4


def test_a_resumed_run_makes_no_other_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert list_ops.main([*LISTS, "--savedir", str(tmp_path)]) == 130
    before = sorted(tmp_path.iterdir())
    assert list_ops.main(["--resume", str(tmp_path / "latest")]) == 130
    assert sorted(tmp_path.iterdir()) == before


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, monkeypatch):
    assert train(tmp_path, "whole") == 0
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert train(tmp_path, "cut") == 130
    assert list_ops.main(["--resume", str(tmp_path / "cut")]) == 130
    monkeypatch.undo()
    assert list_ops.main(["--resume", str(tmp_path / "cut"), "--num-threads", "1"]) == 0
    whole, cut = (load_checkpoint(tmp_path / name / "model.tar") for name in ("whole", "cut"))
    assert whole["step"] == cut["step"] == 15
    for name, tensor in whole["model_state_dict"].items():
        assert torch.equal(tensor, cut["model_state_dict"][name]), name
    assert read_logs(tmp_path / "cut")["total_loss"] == read_logs(tmp_path / "whole")["total_loss"]
    results = [json.loads((tmp_path / name / RESULT_FILE).read_text()) for name in ("whole", "cut")]
    assert all(0 < result.pop("seconds") < 100 for result in results)
    assert results[0] == results[1]


def test_a_run_is_saved_within_an_epoch_too(tmp_path, monkeypatch):
    saved, keep = [], CheckpointFolder.save

    def save(self, payload, step, score=None):
        saved.append((step, score is not None))
        return keep(self, payload, step, score)

    monkeypatch.setattr(CheckpointFolder, "save", save)
    assert train(tmp_path, "often", "--epochs", 2, "--checkpoint-minutes", "1e-6") == 0
    assert saved == [(0, False), *((step, step % 5 == 0) for step in range(1, 11))]


def test_a_loss_that_is_no_number_ends_the_run(tmp_path, monkeypatch, capsys):
    update = Trainer.update

    def broken(self, batch):
        if self.updates == 7:
            next(self.model.parameters()).data.fill_(torch.nan)
        return update(self, batch)

    monkeypatch.setattr(Trainer, "update", broken)
    where = ("--savedir", tmp_path, "--xpid", "a")
    said = error_of(list_ops.main, [*LISTS, *where], capsys)
    assert "the loss became nan at update 8: lower --learning-rate" in said
    kept = load_checkpoint(tmp_path / "a" / "model.tar")
    assert kept["step"] == 5
    assert all(tensor.isfinite().all() for tensor in kept["model_state_dict"].values())


def test_statistics_stand_beside_the_papers(tmp_path, capsys):
    small_set = ("--train-size", "50", "--valid-size", "1", "--test-size", "1")
    assert list_ops.main(["--statistics", *small_set, "--savedir", str(tmp_path)]) == 0
    assert "37 / 98 / 364" in capsys.readouterr().out


@pytest.mark.parametrize("main", [code_execution.main, list_ops.main])
def test_help_has_examples_of_its_own(main, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    words = capsys.readouterr().out
    own, other = ("--depth 15", "--variables 5")[:: 1 if main is list_ops.main else -1]
    assert exit_.value.code == 0 and own in words and other not in words


def error_of(main, arguments, capsys) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, arguments)))
    assert exit_.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    return line


@pytest.mark.parametrize(
    ("main", "arguments", "says"),
    [
        (list_ops.main, ["--depth", "20"], "--depth must lie in [1, 19]"),
        (list_ops.main, ["--depth", "1", "--max-arguments", "1"], "--max-arguments must lie in"),
        (code_execution.main, ["--variables", "6"], "--variables must lie in [1, 5]"),
        (code_execution.main, ["--statements", "1"], "--statements must be at least 2"),
        (code_execution.main, ["--core", "rnd"], "known: feedforward, feedforward_gated"),
        (code_execution.main, ["--core", "lstm", "--core-heads", "4"], "no option 'heads'"),
        (code_execution.main, ["--preset", "smal"], "known: paper, small"),
        (code_execution.main, ["--core-heads", "3"], "cannot be split into 3 heads"),
        (code_execution.main, ["--embedding", "0"], "--embedding must lie in 1 to 100,000"),
        (code_execution.main, ["--dropout", "1"], "--dropout must lie in"),
        (code_execution.main, ["--epochs", "0"], "--epochs must be at least 1"),
        (code_execution.main, ["--train-size", "0"], "--train-size must be at least 1"),
        (code_execution.main, ["--seed", "-1"], "--seed must lie in"),
        (code_execution.main, ["--device", "gpu"], "auto, cpu, cuda"),
        (code_execution.main, ["--learning-rate", "nan"], "--learning-rate must be a number"),
        (code_execution.main, ["--clip", "nan"], "--clip must be a number, not nan"),
        (code_execution.main, ["--core-dropout", "nan"], "--core-dropout must be a number"),
        (code_execution.main, ["--core-dropout", "1"], "--core-dropout must lie in [0, 1)"),
        (code_execution.main, ["--checkpoint-minutes", "nan"], "--checkpoint-minutes must be"),
        (code_execution.main, ["--batch-size", str(10**18)], "--batch-size must lie in [1, 2^20]"),
        (code_execution.main, ["--xpid", ""], "--xpid '' cannot name a folder"),
        (code_execution.main, ["--data", __file__], "choose a --data"),
        (code_execution.main, ["--data", "/proc/nowhere"], "choose a --data"),
        (code_execution.main, ["--seeds", "4"], "--seeds works only with --table"),
        (list_ops.main, ["--legacy-selection"], "--legacy-selection is only for formal languages"),
        (list_ops.main, ["--resume", "nowhere"], "nowhere holds no run"),
        (list_ops.main, ["--resume", "nowhere", "--preset", "small"], "contradict"),
    ],
)
def test_bad_input_is_one_line(main, arguments, says, tmp_path, capsys):
    assert says in error_of(main, [*arguments, "--savedir", tmp_path], capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kernels", "cuda"], "delta_rule cannot run on the cuda backend"),
        (["--kernels", "chunked", "--core", "lstm"], "lstm has no backend 'chunked'"),
    ],
)
def test_kernels_that_cannot_be_are_one_line(arguments, says, tmp_path, capsys):
    given = [*arguments, "--device", "cpu", "--savedir", tmp_path]
    assert says in error_of(code_execution.main, given, capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("main", "arguments", "says"),
    [
        (code_execution.main, ["--table", "7"], "which has tables 2, 5, 6"),
        (list_ops.main, ["--only", "rnd"], "--only rnd: this table has lstm, transformer, lt,"),
        (list_ops.main, ["--settings", "depth=5"], "known: depth=10, depth=15"),
        (list_ops.main, ["--seeds", "-1"], "--seeds must lie in [0, 2^31), not -1"),
        (list_ops.main, ["--seeds", "1", "1"], "and each only once"),
        (list_ops.main, ["--epochs-at-most", "0"], "--epochs-at-most must be at least 1"),
        (list_ops.main, ["--device", "cuda:99"], "CUDA devices here"),
        (list_ops.main, ["--data", "x"], "--data holds the sequences of one setting"),
        (list_ops.main, ["--core", "delta_net"], "--core cannot be used with --table"),
        (list_ops.main, ["--train-size", "9", "--seed", "2"], "--seed, --train-size cannot be"),
        (list_ops.main, ["--clip", "1"], "it takes --device, --kernels, --data, and --only"),
        (code_execution.main, ["--variables", "5"], "--data, --legacy-conditional-assign, and"),
        (list_ops.main, ["--savedir", "x"], "--savedir cannot be used with --table"),
        (list_ops.main, ["--statistics"], "--statistics cannot be used with --table"),
    ],
)
def test_what_no_table_can_have_is_one_line(main, arguments, says, tmp_path, capsys):
    given = ["--table", "2", "--runs", tmp_path, *arguments]
    assert says in error_of(main, given, capsys)
    assert not list(tmp_path.iterdir())


def test_too_few_different_sequences(tmp_path, capsys):
    tiny = ["--variables", "1", "--statements", "2", "--savedir", tmp_path]
    assert "too few different sequences" in error_of(code_execution.main, tiny, capsys)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert train(folder, "a") == 0
    return folder / "a"


@pytest.mark.parametrize("best", ["newest", "lost"])
def test_the_best_epoch_survives_a_kill_before_it_was_linked(best, finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / RESULT_FILE).unlink()
    (run / "checkpoints" / "best.pt").unlink()
    newest = run / "checkpoints" / "step_000000000015.pt"
    payload = load_checkpoint(newest)
    payload["trainer"]["counters"]["best_score"] = payload["score"] if best == "newest" else 2.0
    save_checkpoint(payload, newest)
    (run / "model.tar").unlink()
    assert list_ops.main(["--resume", str(run)]) == 0
    said = capsys.readouterr().err
    assert ("does not hold the best epoch any more" in said) == (best == "lost")
    assert json.loads((run / RESULT_FILE).read_text())["best_epoch"] == 3


def test_a_run_goes_on_from_the_newest_checkpoint_alone(finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / RESULT_FILE).unlink()
    shutil.rmtree(run / "checkpoints")
    assert list_ops.main(["--resume", str(run)]) == 0
    assert json.loads((run / RESULT_FILE).read_text())["best_epoch"] == 3


def test_sequences_of_somebody_else_can_be_read(finished, tmp_path, monkeypatch):
    """Sequences of another user, in a folder without write permission, can be read."""

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (drawn,) = (finished.parent / "data").iterdir()
    monkeypatch.setattr("fastweights.host.folder_lock.FolderLock", refused)
    assert train(tmp_path, "b", "--data", drawn, "--epochs", "1") == 0


def test_a_damaged_newest_checkpoint_is_passed_over_and_said(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / RESULT_FILE).unlink()
    (run / "model.tar").unlink()
    (run / "checkpoints" / "step_000000000015.pt").write_bytes(b"PK damaged")
    assert list_ops.main(["--resume", str(run)]) == 0
    assert "step_000000000015.pt" in capsys.readouterr().err


def test_a_checkpoint_of_another_task(finished, capsys):
    line = error_of(code_execution.main, ["--resume", finished], capsys)
    assert line.rstrip().endswith("is a run of list_ops: use python launch/list_ops.py")


@pytest.mark.parametrize("change", [["--depth", "2"], ["--seed", "5"], ["--epochs", "9"]])
def test_resume_refuses_contradictions(finished, change, capsys):
    line = error_of(list_ops.main, ["--resume", finished, *change], capsys)
    assert "contradict --resume" in line and change[0] in line


def test_a_finished_run_is_not_resumed(finished, capsys):
    assert "has finished" in error_of(list_ops.main, ["--resume", finished], capsys)


def test_a_table_is_no_resumed_run(finished, capsys):
    line = error_of(list_ops.main, ["--table", "2", "--resume", finished], capsys)
    assert "--resume cannot be used with --table" in line


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"core_width": 32}, "--core-width 16 (was 32)"),
        ({"task_name": "code_execution"}, "is a checkpoint of code_execution, not of list_ops"),
        ({"task_name": None}, "is a checkpoint of an agent, not of list_ops"),
    ],
)
def test_a_checkpoint_of_another_model(finished, change, says, tmp_path, capsys):
    run = tmp_path / "runs" / "a"
    shutil.copytree(finished, run)
    (run / RESULT_FILE).unlink()
    for path in (run / "checkpoints").glob("*.pt"):
        payload = load_checkpoint(path)
        save_checkpoint(payload | {"flags": payload["flags"] | change}, path)
    assert says in error_of(list_ops.main, ["--resume", run, "--num-threads", "1"], capsys)


def test_data_of_other_settings(finished, capsys):
    data = finished.parent / "data"
    (folder,) = data.iterdir()
    other = [*LISTS, "--savedir", finished.parent, "--data", folder, "--depth", "2"]
    line = error_of(list_ops.main, other, capsys)
    assert "depth 1" in line and "depth 2" in line and "--data" in line


def test_damaged_data(tmp_path, capsys):
    (tmp_path / FILE).write_bytes(b"not sequences")
    line = error_of(list_ops.main, [*LISTS, "--savedir", tmp_path, "--data", tmp_path], capsys)
    assert "delete it" in line


@pytest.mark.parametrize(
    "damage",
    [
        lambda split: split | {"tokens": split["tokens"][:-1]},
        lambda split: split | {"targets": split["targets"][:-1]},
        lambda split: split | {"tokens": split["tokens"] + 99},
        lambda split: split | {"targets": split["targets"] - 1},
        lambda split: split | {"tokens": split["tokens"].float()},
        lambda split: split | {"lengths": split["lengths"][:0]},
        lambda split: {name: part[:0] for name, part in split.items()},
    ],
)
def test_data_cut_short(finished, damage, tmp_path, capsys):
    (drawn,) = (finished.parent / "data").glob(f"*/{FILE}")
    contents = load_checkpoint(drawn)
    save_checkpoint(contents | {"train": damage(contents["train"])}, tmp_path / FILE)
    line = error_of(list_ops.main, [*LISTS, "--savedir", tmp_path, "--data", tmp_path], capsys)
    assert "delete it" in line


def options_for(folder: Path) -> SequenceOptions:
    options = small("lstm", ListOps(depth=8)).to_dict() | {"data": str(folder)}
    return SequenceOptions.from_dict(options | {"train_size": 300})


def draw_into(folder: Path, start, results) -> None:
    start.wait()
    drawn = sequences_of(options_for(folder))
    results.put((drawn["test"].tokens.sum().item(), (folder / FILE).stat().st_ino))


def test_two_starts_at_once_draw_once(tmp_path):
    """Both processes find no file; the second waits for the first and reads what it wrote."""
    context = multiprocessing.get_context("fork")
    start, results = context.Event(), context.Queue()
    both = [context.Process(target=draw_into, args=(tmp_path, start, results)) for _ in range(2)]
    for process in both:
        process.start()
    start.set()
    assert len({results.get(timeout=60) for _ in both}) == 1
    for process in both:
        process.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", FILE]
