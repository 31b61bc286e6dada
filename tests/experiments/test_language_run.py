"""The command of language models: a run, resuming, evaluation, export, tables, bad input."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from forks import Program
from ports import free_port
from small_runs import StoppingDisplay
from small_texts import TEXT, plain
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fastweights.experiments.language_model.figures import FULL, figures, published
from fastweights.experiments.language_model.options import LanguageOptions, language_preset
from fastweights.experiments.language_model.run import SAMPLES
from fastweights.experiments.language_model.saved import open_model
from fastweights.experiments.learning import RESULT_FILE
from fastweights.launch import wikitext103
from fastweights.records.checkpoints import load_checkpoint, save_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import read_meta
from fastweights.tasks.language_model.trainer import LanguageTrainer

SCRIPT = Path(wikitext103.__file__)
LINES = {split: content * 6 for split, content in TEXT.items()}
TINY = (
    *("--preset", "small", "--num-threads", "1", "--core-width", "16", "--columns", "4"),
    *("--span", "8", "--updates", "6", "--warm-up", "2", "--evaluate-every", "3"),
    *("--stride", "3", "--sample-length", "9", "--dropout", "0.2", "--ngram-rows", "50"),
    *("--precision", "float32"),  # in bfloat16, sums over other batches differ in the third digit
)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return plain(tmp_path_factory.mktemp("texts") / "wikitext-2", "wiki.{}.tokens", LINES)


def train(text: Path, folder: Path, xpid: str, *options: object) -> int:
    cores = () if "--core" in options else ("--core", "rdn", "--core-layers", "1")
    where = ("--data", text, "--savedir", folder, "--xpid", xpid)
    return wikitext103.main([*map(str, (*TINY, *cores, *where, *options))])


def error_of(words, capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        wikitext103.main([*map(str, words)])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert ended.value.code == 2 and len(lines) == 1
    return lines[0]


def test_a_run_learns_and_measures(text, tmp_path, capsys):
    assert train(text, tmp_path, "a", "--vocabulary", "words") == 0
    run = tmp_path / "a"
    said = capsys.readouterr().out
    counts = {
        s: sum(len(line.split()) + 1 for line in t.split("\n")[:-1]) for s, t in LINES.items()
    }
    line = f"WikiText-2 train tokens: found {counts['train']}, expected 2,088,628: NOT as published"
    assert line in said
    assert "warning: the counts differ from those published for WikiText-2" in said
    logs = read_logs(run)
    assert logs["step"] == [1, 2, 3, 4, 5, 6]
    assert [score is not None for score in logs["valid_loss"]] == [False, False, True] * 2
    best = load_checkpoint(run / "checkpoints" / "best.pt")
    assert best["score"] == pytest.approx(-min(filter(None, logs["valid_loss"])))
    result = json.loads((run / RESULT_FILE).read_text())
    assert result["test"]["predictions"] == counts["test"] - 1
    assert result["evaluation"] == "windows of 8, stride 3"
    assert result["text"]["counts"]["valid"] == counts["valid"]
    assert f"{result['test']['perplexity']:.2f} of words" in said
    assert (run / SAMPLES).read_text().count("--- update") == 2
    assert read_meta(run)["network"]["parameters"] == result["parameters"]
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    tags = {"perplexity/held_out", "perplexity/learned", "throughput/tokens_per_second"}
    assert tags <= set(events.Tags()["scalars"])


@pytest.mark.parametrize(
    "options",
    [
        ("--full-context", "--micro-columns", "3"),
        ("--core", "transformer", "--full-context"),
        ("--core", "lstm", "--precision", "bfloat16"),
    ],
    ids=" ".join,
)
def test_a_stopped_run_goes_on_to_the_same_end(options, text, tmp_path, monkeypatch):
    assert train(text, tmp_path, "whole", *options) == 0
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert train(text, tmp_path, "cut", *options) == 130
    resume = ["--resume", str(tmp_path / "cut"), "--num-threads", "1"]
    assert wikitext103.main(resume) == 130
    monkeypatch.undo()
    assert wikitext103.main(resume) == 0
    whole, cut = (load_checkpoint(tmp_path / name / "model.tar") for name in ("whole", "cut"))
    assert whole["step"] == cut["step"] == 6
    for name, tensor in whole["model_state_dict"].items():
        assert torch.equal(tensor, cut["model_state_dict"][name]), name
    assert whole["trainer"]["counters"] == cut["trainer"]["counters"]
    for one, other in zip(whole["trainer"]["state"], cut["trainer"]["state"], strict=True):
        assert torch.equal(one, other)
    losses = [read_logs(tmp_path / name)["total_loss"] for name in ("whole", "cut")]
    assert losses[0] == losses[1]
    results = [json.loads((tmp_path / name / RESULT_FILE).read_text()) for name in ("whole", "cut")]
    for result in results:
        del result["seconds"], result["tokens_per_second"]
    assert results[0] == results[1]


def test_a_run_is_evaluated_writes_and_is_exported(text, tmp_path, capsys):
    assert train(text, tmp_path, "a", "--full-context") == 0
    run, out = tmp_path / "a", tmp_path / "exported"
    result = json.loads((run / RESULT_FILE).read_text())
    capsys.readouterr()
    asked = ("--protocol", "both", "--stride", "2", "--by-position", "--context", "16")
    assert wikitext103.main(["evaluate", str(run), *asked]) == 0
    said = capsys.readouterr().out
    assert "valid, windows of 8, stride 2: perplexity" in said
    assert f"test, full context, one column: perplexity {result['test']['perplexity']:.2f}" in said
    assert "test, tokens 9 to 16: perplexity" in said
    kept = sorted(path.name for path in (run / "evaluations").iterdir())
    assert any(re.search(r"by_position_both_16_text-.*\.png$", name) for name in kept)
    one = json.loads((run / "evaluations" / next(n for n in kept if "test_full" in n)).read_text())
    assert one["bits_per_byte"] == pytest.approx(result["test"]["bits_per_byte"])
    assert wikitext103.main(["export", str(run), str(out)]) == 0
    for name in ("model.safetensors", "config.json", "vocabulary.json", "README.md"):
        assert (out / name).exists()
    assert f"{result['test']['bits_per_byte']:.3f}" in (out / "README.md").read_text()
    written = []
    for source in (run, run / "checkpoints" / "best.pt", out):
        capsys.readouterr()
        words = ("--prompt", "the cat", "--length", "12", "--temperature", "0.5")
        assert wikitext103.main(["generate", str(source), *words]) == 0
        written.append(capsys.readouterr().out)
    assert written[0].startswith("the cat")
    assert written[0] == written[1] == written[2]
    asked = ("--split", "valid", "--data", str(text), "--cache", str(tmp_path / "cache"))
    assert wikitext103.main(["evaluate", str(out), *asked]) == 0
    assert str(tmp_path) not in (out / "config.json").read_text()


def test_evaluations_of_other_texts_and_splits_are_kept_side_by_side(text, tmp_path):
    assert train(text, tmp_path, "a") == 0
    longer = {split: 2 * lines for split, lines in LINES.items()}
    other = plain(tmp_path / "other", "wiki.{}.tokens", longer)
    curves = ("--by-position", "--context", "16")
    for split in ("valid", "test"):
        for data in ((), ("--data", str(other))):
            asked = ("--split", split, "--stride", "8", *curves, *data)
            assert wikitext103.main(["evaluate", str(tmp_path / "a"), *asked]) == 0
    files = (tmp_path / "a" / "evaluations").glob("*.json")
    kept = [json.loads(path.read_text()) for path in files]
    assert len(kept) == 8 and len({one["text"] for one in kept}) == 2


def two_learners(*words: object) -> None:
    """Run the command as torchrun would, in two processes; both must succeed."""
    together = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    together["MASTER_PORT"] = str(free_port())
    learners = [
        Program(SCRIPT, *words, environment=together | {"RANK": r, "LOCAL_RANK": r}) for r in "01"
    ]
    for ended in [learner.end() for learner in learners]:
        assert ended.returncode == 0, ended.stderr


def test_two_learners_are_one(text, tmp_path):
    """Two processes of torchrun learn the same as one, each with a part of the columns."""
    assert train(text, tmp_path, "one", "--full-context", "--dropout", "0") == 0
    words = (*TINY, "--dropout", "0", "--core", "rdn", "--core-layers", "1", "--full-context")
    two_learners(*words, "--data", text, "--savedir", tmp_path, "--xpid", "two")
    one, two = (load_checkpoint(tmp_path / name / "model.tar") for name in ("one", "two"))
    for name, tensor in one["model_state_dict"].items():
        torch.testing.assert_close(tensor, two["model_state_dict"][name], atol=2e-4, rtol=0)
    for a, b in zip(one["trainer"]["state"], two["trainer"]["state"], strict=True):
        assert a.shape == b.shape  # of all columns
        torch.testing.assert_close(a, b, atol=1e-2, rtol=0)


def test_two_learners_resume_from_the_newest_checkpoint_alone(text, tmp_path, monkeypatch):
    """With full context, a checkpoint is put together from all learners' states."""
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert train(text, tmp_path, "a", "--full-context", "--updates", "3") == 130
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    two_learners("--resume", tmp_path / "a")
    assert read_logs(tmp_path / "a")["step"] == [1, 2, 3]


def test_a_signal_in_the_last_update_leaves_measuring_to_the_resumed_run(
    text, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
        assert train(text, tmp_path, "a", "--updates", "1") == 130
    assert load_checkpoint(tmp_path / "a" / "checkpoints" / "best.pt")["step"] == 1
    assert not (tmp_path / "a" / RESULT_FILE).exists()
    assert wikitext103.main(["--resume", str(tmp_path / "a")]) == 0
    assert json.loads((tmp_path / "a" / RESULT_FILE).read_text())["updates"] == 1


KILLED = """
import os, sys
from fastweights.launch import wikitext103
from fastweights.records import RunRecords
RunRecords.begin = lambda *given: os._exit(9)
wikitext103.main(sys.argv[1:])
"""


def test_a_run_that_was_killed_before_its_first_files_goes_on(text, tmp_path):
    words = (*TINY, "--core", "lt", "--data", text, "--savedir", tmp_path, "--xpid", "a")
    assert Program(KILLED, *words, "--updates", "1").end().returncode == 9
    assert not (tmp_path / "a" / "vocabulary.json").exists()
    assert wikitext103.main(["--resume", str(tmp_path / "a")]) == 0
    assert open_model(tmp_path / "a", torch.device("cpu")).step == 1


def test_a_full_disk_at_the_start_leaves_no_run(text, tmp_path, monkeypatch, capsys):
    def full(path, *given):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    words = (*TINY, "--core", "lt", "--data", text, "--savedir", tmp_path / "runs", "--xpid", "a")
    words = (*words, "--cache", tmp_path / "cache", "--updates", "1")
    for writes, file in (
        ("fastweights.records.log_table.LogTable.rewind", "logs.csv"),
        ("fastweights.records.run_records.write_bytes", "vocabulary.json"),
        ("fastweights.records.checkpoints.write_bytes", "step_000000000000.pt"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(writes, full)
            assert f"{file}: No space left on device" in error_of(words, capsys)
        assert not list((tmp_path / "runs").iterdir())


def test_a_full_disk_at_the_start_leaves_a_resumed_run(text, tmp_path, monkeypatch, capsys):
    words = (*TINY, "--core", "lt", "--data", text, "--savedir", tmp_path, "--xpid", "a")
    assert Program(KILLED, *words, "--updates", "1").end().returncode == 9

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("fastweights.records.checkpoints.write_bytes", full)
        assert "No space left on device" in error_of(("--resume", tmp_path / "a"), capsys)
    assert wikitext103.main(["--resume", str(tmp_path / "a")]) == 0


def test_tables_name_the_papers_figures():
    scores = {(table, f.row, f.context): f.published for table in "14" for f in figures(table)}
    assert scores["1", "RDN", FULL] == {"valid": 32.5, "test": 33.6, "parameters": 44.1}
    assert scores["4", "Delta LSTM A", "spans"]["test"] == 39.9
    assert [len(published()[table]) for table in "14"] == [10, 8]
    deep = next(f for f in figures("4") if f.row == "Delta MLP A").options("paper", {})
    assert (deep.core_layers, deep.core_version) == (8, "A")
    whole = next(f for f in figures("1") if f.context == FULL).options("small", {"data": "x"})
    assert whole.trainer.full_context and whole.model().positions == "none" and whole.data == "x"
    with pytest.raises(ValueError, match="unknown --table '2'; known: 1, 4, all"):
        figures("2")


def test_a_table_is_runs_and_a_smoothed_ngram(forked_runs, text, tmp_path, capsys):
    words = ("--table", "1", "--preset", "small", "--data", text, "--only", "lt", "--seeds", "1")
    where = ("--runs", tmp_path, "--updates-at-most", "1", "--jobs", "2")
    assert wikitext103.main([*map(str, (*words, *where))]) == 0
    folder = tmp_path / "language-small-1-updates"
    table = (folder / "language_table_1_1_updates.md").read_text()
    row = r"\| Linear Transformer \| `lt` \| spans \| .* \| 37.1 / 38.3 \(44.0 M\) \|"
    assert re.search(row, table)
    assert "Kneser-Ney 5-gram of bytes" in table and "Kneser-Ney 12-gram of bytes" in table
    results = json.loads((folder / "language_table_1_1_updates_results.json").read_text())
    assert [run["precision"] for run in results["runs"]] == [os.environ["FASTWEIGHTS_PRECISION"]]
    assert results["full_context"] == []


def test_a_loss_that_is_no_number_ends_the_run(text, tmp_path, monkeypatch, capsys):
    update = LanguageTrainer.update

    def broken(self):
        if self.updates == 4:
            next(self.model.parameters()).data.fill_(torch.nan)
        return update(self)

    monkeypatch.setattr(LanguageTrainer, "update", broken)
    words = (*TINY, "--core", "lt", "--data", text, "--savedir", tmp_path, "--xpid", "a")
    said = error_of(words, capsys)
    assert "the loss became nan at update 5: lower --learning-rate" in said
    assert load_checkpoint(tmp_path / "a" / "model.tar")["step"] == 3


@pytest.mark.parametrize(
    ("clip", "says"), [("0.25", "or --clip below 0.25"), ("0", "or set --clip")]
)
def test_a_gradient_that_is_not_finite_is_not_saved(
    clip, says, text, tmp_path, monkeypatch, capsys
):
    """One infinite entry in the last update, after which the run would be measured and saved."""
    update = LanguageTrainer.update

    def broken(self):
        if self.updates == 5:
            next(self.model.parameters()).register_hook(lambda gradient: gradient / 0)
        return update(self)

    monkeypatch.setattr(LanguageTrainer, "update", broken)
    words = ("--data", text, "--savedir", tmp_path, "--xpid", "a", "--clip", clip)
    said = error_of((*TINY, "--core", "lt", *words), capsys)
    assert re.search(r"the gradient's norm became (inf|nan) at update 6: .*lower --lear", said)
    assert said.endswith(says)
    monkeypatch.undo()
    for name in ("model.tar", "checkpoints/best.pt"):
        kept = load_checkpoint(tmp_path / "a" / name)
        assert kept["step"] == 3
        assert all(tensor.isfinite().all() for tensor in kept["model_state_dict"].values())
    assert wikitext103.main(["--resume", str(tmp_path / "a"), "--num-threads", "1"]) == 0


def test_bad_input_of_language_models_is_one_line(text, tmp_path, capsys):
    assert train(text, tmp_path, "a", "--updates", "1") == 0
    for folder, task in (("other", "parity"), ("lists", "list_ops")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "meta.json").write_text(f'{{"args": {{"task_name": "{task}"}}}}')
    run, sliding = tmp_path / "a", ("--protocol", "sliding")
    for words, wanted in (
        ((), "there is no text: give one with --data .*load_dataset"),
        (("--data", tmp_path / "no"), "no such file or folder"),
        (("--data", text, "--columns", "300"), "--columns 300 is too many for"),
        (("--data", text, "--core", "rdm"), "unknown core 'rdm'"),
        (("--data", text, "--preset", "tiny"), "unknown preset 'tiny'; known: paper, small"),
        (("--resume", run), "has finished"),
        (("--resume", run, "--core", "lt"), r"contradict --resume: --core lt \(was rdn\)"),
        (("--resume", tmp_path / "other"), "is a run of parity: use .*formal_language"),
        (("--resume", tmp_path / "lists"), "is a run of list_ops"),
        (("--seeds", "4", "--data", text), "--seeds works only with --table"),
        (("--table", "1", "--core", "rdn"), "--core cannot be used with --table"),
        (("--table", "1", "--span", "3"), "--span cannot be used with --table"),
        (("--table", "1", "--preset", "small", "--only", "rdm"), "--only rdm: this table has"),
        (("evaluate", tmp_path / "b"), "no such run; did you mean|no such run"),
        (("evaluate", run, "--stride", "9"), r"--stride must lie in \[1, 8\]"),
        (("evaluate", run, "--context", "0"), "--context must be at least 1"),
        (("evaluate", run, "--by-position"), "--context 2,048 is more than the"),
        (("evaluate", run, "--context", "9"), "--context has no effect here: it needs --by-p"),
        (("evaluate", run, *sliding, "--columns", "2"), "needs --protocol full-context or both"),
        (("evaluate", run, "--protocol", "full-context", "--stride", "2"), "--stride has no ef"),
        (("evaluate", run, "--data", tmp_path / "no"), "no such file or folder"),
        (("generate", run, "--top-p", "2"), r"--top-p must lie in \(0, 1\]"),
        (("export", run, text / "wiki.test.tokens"), "is a file: give a folder"),
        (("export", run, text), "contains other files: give a new folder"),
    ):
        assert re.search(wanted, error_of(words, capsys)), words


def test_a_vocabulary_that_does_not_fit_is_one_line(text, tmp_path, capsys):
    assert train(text, tmp_path, "a", "--updates", "1", "--vocabulary", "words") == 0
    run = tmp_path / "a"
    other = plain(tmp_path / "wikitext-2", "wiki.{}.tokens", LINES | {"train": "other words\n"})
    assert "has another vocabulary" in error_of(("evaluate", run, "--data", other), capsys)
    plainly = json.loads((run / "vocabulary.json").read_text())
    (run / "vocabulary.json").write_text(json.dumps(plainly | {"types": plainly["types"][:-1]}))
    assert "restore the run's own vocabulary" in error_of(("generate", run), capsys)
    (run / "vocabulary.json").write_text("{")
    assert "is damaged" in error_of(("generate", run), capsys)
    (run / "vocabulary.json").unlink()
    assert "has no vocabulary.json" in error_of(("generate", run), capsys)


def test_a_resumed_run_needs_the_same_text(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert train(text, tmp_path, "a") == 130
    other = plain(tmp_path / "other", "{}.txt", LINES | {"train": LINES["train"] + "more\n"})
    words = ("--resume", tmp_path / "a", "--data", other)
    assert "is not the text that" in error_of(words, capsys)


def test_options_of_another_run_are_refused(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.experiments.learning.ProgressDisplay", StoppingDisplay)
    assert train(text, tmp_path, "a") == 130
    newest = tmp_path / "a" / "model.tar"
    payload = load_checkpoint(newest)
    payload["flags"] = language_preset("small", "lt").to_dict()
    for path in (*(tmp_path / "a" / "checkpoints").iterdir(), newest):
        save_checkpoint({k: v for k, v in payload.items() if k not in ("format", "version")}, path)
    assert "does not belong to the run in" in error_of(("--resume", tmp_path / "a"), capsys)


def test_an_export_is_read_without_the_text(text, tmp_path):
    assert train(text, tmp_path, "a", "--updates", "2") == 0
    assert wikitext103.main(["export", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    exported = open_model(tmp_path / "out", torch.device("cpu"))
    assert isinstance(exported.options, LanguageOptions)
    weights = load_checkpoint(tmp_path / "a" / "checkpoints" / "best.pt")["model_state_dict"]
    for name, tensor in exported.model.state_dict().items():
        assert torch.equal(tensor, weights[name])
