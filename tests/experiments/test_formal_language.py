"""The command of formal languages: runs end when solved; their results; bad input."""

import csv
import json
import shutil
from dataclasses import replace

import pytest
import torch

from fastweights.cores import CORES
from fastweights.experiments.formal_languages.presets import configuration, paper, small
from fastweights.experiments.sequences.figures import figures
from fastweights.experiments.sequences.measures import measure
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.experiments.sequences.saved import open_sequence_model
from fastweights.host import UserError
from fastweights.launch import formal_language
from fastweights.records.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import read_meta
from fastweights.tasks import LANGUAGES, Sequences
from tests.launch.test_bad_input import error_of

# Learns (aa)* up to length 8 in a second.
QUICK = ("--task", "aa", "--core", "lstm", "--preset", "small", "--core-width", "8")
QUICK += ("--embedding", "4", "--sizes", "2", "8", "--train-size", "160", "--epochs", "60")
QUICK += ("--learning-rate", "0.03", "--evaluate-every", "10", "--num-threads", "1")
QUICK += ("--test-lengths", "30", "61")
# With options that the settings of a search replace.
SEARCH = ["--search", "random", "--trials", "1", "--seed", "5", "--learning-rate", "9"]
SEARCH += ["--core-width", "7", "--xpid", "q", "--savedir", "z"]


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Return a run that has learned (aa)*."""
    folder = tmp_path_factory.mktemp("runs")
    where = ("--savedir", str(folder), "--xpid", "aa")
    assert formal_language.main([*QUICK, *where]) == 0
    return folder / "aa"


def test_a_run_ends_when_all_is_right_and_says_what_each_length_is_like(solved):
    result = json.loads((solved / "result.json").read_text())
    logs = read_logs(solved)
    right = [share for share in logs["valid_sequence_accuracy"] if share is not None]
    assert right[-1] == 1 and right.count(1) == 1
    assert len(logs["step"]) == result["updates"] < 600
    assert result["solved"] and result["best_update"] == result["updates"]
    assert result["bin0"]["sequence_accuracy"] == result["bin1"]["sequence_accuracy"] == 1
    assert [row["size"] for row in result["lengths"]] == [30, 60]  # 61 was asked for
    assert [row["length"] for row in result["lengths"]] == [30, 60]
    # There is one string of each length.
    assert {row["sequences"] for row in result["lengths"]} == {1}
    with (solved / "lengths.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["split"], int(r["length"])) for r in rows[:9]] == [
        *(("bin0", length) for length in (2, 4, 6, 8)),
        *(("bin1", length) for length in (10, 12, 14, 16)),
        ("length", 30),
    ]
    assert {row["sequences"] for row in rows} == {"1"}
    assert (solved / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_both_bins_select_if_the_published_selection_is_asked_for(tmp_path):
    """Four epochs are too few to learn the language: the splits differ."""
    where = ("--savedir", str(tmp_path), "--xpid", "legacy", "--legacy-selection")
    assert formal_language.main([*QUICK, *where, "--epochs", "4"]) == 0
    result = json.loads((tmp_path / "legacy" / "result.json").read_text())
    logs = read_logs(tmp_path / "legacy")
    selected = logs["valid_answer_accuracy"][logs["step"].index(result["best_update"])]
    positions = {"bin0": 2 + 4 + 6 + 8, "bin1": 10 + 12 + 14 + 16}
    right = sum(result[split]["answer_accuracy"] * n for split, n in positions.items())
    assert selected == pytest.approx(right / sum(positions.values()))
    assert selected != pytest.approx(result["valid"]["answer_accuracy"])
    assert not result["solved"]


def test_a_short_run_says_that_its_average_is_mostly_first_weights(solved, tmp_path, capsys):
    where = ("--savedir", str(tmp_path), "--xpid", "short", "--epochs", "2")
    assert formal_language.main([*QUICK, *where]) == 0
    note = "note: after 20 updates, the evaluated average of the weights still contains 83 %"
    assert note in (said := capsys.readouterr().out) and said.count("note: ") == 1
    assert "train for more --epochs, or set --average below 0.99" in said
    where = ("--savedir", str(tmp_path), "--xpid", "fast", "--epochs", "2", "--average", "0.5")
    assert formal_language.main([*QUICK, *where]) == 0
    assert "note: " not in capsys.readouterr().out


def test_the_published_selection_has_runs_of_its_own():
    options = "formal_language", 1, "paper", None
    honest, published = (
        figures(*options, changes)[0] for changes in ({}, {"legacy_selection": True})
    )
    assert honest.run(1).name == "parity-lstm-seed1"
    assert published.run(1).name == "parity-legacy-selection-lstm-seed1"
    assert honest.options.selecting == ("valid",)
    assert published.options.selecting == ("bin0", "bin1")


def test_the_average_that_was_right_is_what_is_kept(solved):
    best = load_checkpoint(solved / "checkpoints" / "best.pt")
    average = best["trainer"]["average"]
    model, _ = open_sequence_model(solved, "formal_language")
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, average[f"module.{name}"])
        assert not torch.equal(weights, best["model_state_dict"][name])


def test_within_an_epoch_only_the_best_measurements_are_saved(solved):
    """Within an epoch, the newest three checkpoints are those that were best when saved."""
    logs = read_logs(solved)
    scores = zip(logs["step"], logs["score"], strict=True)
    measured = [(step, score) for step, score in scores if score is not None]
    rising, best = [], -1.0
    for step, score in measured:
        if score > best:
            rising, best = [*rising, step], score
    kept = sorted(int(path.stem[5:]) for path in (solved / "checkpoints").glob("step_*.pt"))
    assert kept == [0, *rising][-3:]


def test_baselines_stand_beside_every_split(solved):
    baselines = json.loads((solved / "result.json").read_text())["baselines"]
    for split in ("bin0", "bin1"):
        assert set(baselines[split]) == {
            "always the commonest answer",
            "the commonest answer after each word",
        }
        assert baselines[split]["always the commonest answer"] == {
            "sequence_accuracy": 0,
            "answer_accuracy": 0.5,
        }


def test_baselines_have_learned_from_the_training_split_alone():
    options = SequenceOptions(task=LANGUAGES["parity"](), core="lstm", core_width=4, embedding=4)
    even, odd = (Sequences.of([options.task.labelled(text)]) for text in ("0000", "1000"))
    splits = dict.fromkeys(options.task.splits, odd) | {"train": even}
    baselines = measure(options.build(), options, splits)["baselines"]
    for split in ("bin0", "bin1"):
        assert baselines[split]["always the commonest answer"]["answer_accuracy"] == 0


def test_attention_reaches_over_strings_longer_than_any_in_training():
    task = LANGUAGES["parity"]()
    sizes = {"core_layers": 1, "core_width": 8, "core_heads": 2, "core_feedforward": 8}
    given = {"embedding": 8, "test_lengths": (100,), "length_size": 50, **sizes}
    narrow, wide, narrower = (
        SequenceOptions(task=task, core="transformer", core_window=window, **given)
        for window in (4, 100, 3)
    )
    model = narrow.build()
    with torch.no_grad():
        for weights in model.parameters():  # so that answers depend on all that is attended to
            weights.mul_(4)
    splits = {split: Sequences.of([task.labelled("1010")]) for split in task.splits}

    def right(options):
        return measure(model, options, splits)["lengths"][0]["answer_accuracy"]

    assert right(narrow) == right(wide)  # the window was wide enough for training, so it grows
    assert right(narrower) != right(wide)  # it was narrower than a string, so it is the model's


def test_a_trace_finds_the_unit_that_counts(solved, capsys):
    assert formal_language.main(["--trained", str(solved), "--trace", "aaaaa"]) == 0
    said = capsys.readouterr().out
    assert "follows the machine" in said and "wrong answers: 0 of 5" in said
    with (solved / "trace.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["machine"] for row in rows] == [*"10101"]
    assert [row["expected"] for row in rows] == [row["answered"] for row in rows] == [*"01010"]
    component = list(rows[0])[5]
    values = [float(row[component]) for row in rows]
    odd, even = values[2::2], values[3::2]  # the first two have not settled yet
    assert min(odd) > max(even) or max(odd) < min(even)
    assert (solved / "trace.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "partiy"], "unknown task 'partiy'; known: parity, aa"),
        (["--task", "partiy"], "did you mean parity?"),
        (["--core", "rnd"], "did you mean rdn?"),
        (["--preset", "smal"], "did you mean small?"),
        (["--task", "aa", "--sizes", "1", "1"], "aa has no strings of sizes 1 to 1"),
        (["--sizes", "9", "2"], "--sizes must be two sizes, the smaller first"),
        (["--test-lengths", "0"], "--test-lengths must lie in 1 to 1,000,000, not 0"),
        (["--task", "aa", "--test-lengths", "9", "1"], "--test-lengths: aa has no string of si"),
        (["--task", "aa", "--test-lengths", "8", "9"], "8 9: both mean strings of size 8; give"),
        (["--task", "abab", "--test-lengths", "3"], "its sizes are 4, 8, 12, ..."),
        (["--task", "missing_duplicate", "--test-lengths", "1"], "its sizes are 2, 4, 6, ..."),
        (["--sizes", "1", "2"], "too few different sequences: 3 found, 15000 requested"),
        (["--sizes", "1", "2", "--export", "new/folder"], "too few different sequences"),
        (["--export", __file__], f"--export cannot be created: {__file__}: File exists"),
        (["--legacy"], "--legacy is an option of --task shuffle_2\n"),
        (["--task", "aa", "--no-legacy"], "--no-legacy is an option of --task shuffle_2\n"),
        (["--task", "aa", "--no_legacy_labels"], "--no-legacy-labels is an option of --task a_n"),
        (["--task", "aa", "--legacy-labels"], "--legacy-labels is an option of --task a_n_b_n_si"),
        (
            ["--table", "1", "--legacy"],
            "--legacy is an option of --task shuffle_2; the runs of --t",
        ),
        (["--summary", "--legacy-labels"], "the runs of --summary have the tasks' defaults"),
        (["--length-size", "0"], "--length-size must be at least 1"),
        (["--decoder", "-1"], "--decoder must lie in 0 to"),
        (["--evaluate-every", "-1"], "--evaluate-every must be at least 0"),
        (["--solved-for", "-1"], "--solved-for must be at least 0"),
        (["--trace", "01"], "--trace STRING and --trained RUN must be used together"),
        (["--trained", "nowhere"], "--trace STRING and --trained RUN must be used together"),
        (["--trained", "nowhere", "--trace", "01"], "nowhere holds no run"),
        (["--search", "gird"], "did you mean grid?"),
        (["--search", "random", "--trials", "0"], "--trials must be at least 1"),
        (["--search", "grid", "--figure", "8"], "--figure and --search cannot be used together"),
        (["--figure", "8", "--table", "1"], "--figure and --table cannot be used together"),
        (["--figure", "7"], "--figure 7 is unknown; known: 8"),
        (["--figure", "8", "--out", __file__], f"--out cannot be created: {__file__}: File exists"),
        (["--table", "1", "--out", __file__], f"--out cannot be created: {__file__}: File exists"),
        (["--figure", "8", "--core", "lstm"], "--core cannot be used with --figure, which"),
        (["--figure", "8", "--settings", "aa"], "--settings cannot be used with --figure"),
        (["--summary", "--learning-rate", "1"], "--learning-rate cannot be used with --summary"),
        (["--summary", "--task", "aa"], "--task cannot be used with --summary"),
        (["--summary", "--further", "rdn"], "--further cannot be used with --summary"),
        (["--search", "grid", "--only", "lstm"], "--only cannot be used with --search, which"),
        (["--search", "grid", "--settings", "aa"], "--settings cannot be used with --search"),
        (["--search", "grid", "--trials", "5"], "--trials needs --search random"),
        (SEARCH, "--core-width, --seed, --savedir, --xpid, --learning-rate cannot be"),
        ([*SEARCH[:4], "--core", "rdn", "--core-feedforward", "9"], "--core-feedforward cannot"),
        ([*SEARCH[:4], "--core", "lstm", "--batch-size", "9"], "--batch-size cannot"),
        (["--trained", "x", "--trace", "1", "--preset", "small"], "--preset cannot"),
        (["--trained", "x", "--trace", "1", "--core", "lstm"], "--core cannot be used with"),
        (["--table", "3"], "--table 3 is not a table of formal_language, which has tables 1, 2"),
        (["--table", "1", "--task", "aa"], "--task cannot be used with --table"),
        (["--table", "1", "--settings", "partiy"], "did you mean parity?"),
        (["--table", "1", "--further", "rnd"], "did you mean rdn?"),
        (["--files", "nowhere"], "nowhere: No such file or directory"),
        (["--seeds", "4"], "--seeds works only with --table"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in error_of(formal_language.main, arguments, capsys)
    assert not list(tmp_path.iterdir())


def test_folders_that_were_there_before_a_refusal_stay(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    where = ["--data", tmp_path / "data" / "new", "--sizes", "1", "2"]
    assert "too few different" in error_of(formal_language.main, where, capsys)
    assert [path.name for path in tmp_path.rglob("*")] == ["data"]
    figure = ["--figure", "8", "--runs", tmp_path / "data", "--out", __file__]
    assert "--out cannot be created" in error_of(formal_language.main, figure, capsys)
    assert [path.name for path in tmp_path.rglob("*")] == ["data"]


def test_a_trace_of_what_is_no_string(solved, capsys):
    for text, says in (("ab", "aa has no symbol 'b'"), ("", "empty string: the symbols")):
        said = error_of(formal_language.main, ["--trained", solved, "--trace", text], capsys)
        assert says in said


def test_a_task_and_a_run_of_another_contradict(solved, capsys):
    said = error_of(formal_language.main, ["--task", "parity", "--resume", solved], capsys)
    assert "--task parity contradicts --resume" in said


def test_the_published_configurations():
    rdn, srwm = paper("rdn", LANGUAGES["shuffle_2"]()), paper("srwm", LANGUAGES["dyck_1"]())
    sizes = [(o.core_layers, o.core_width, o.core_feedforward, o.core_heads) for o in (rdn, srwm)]
    assert sizes == [(4, 16, 32, 4), (1, 16, 32, 8)]
    assert (rdn.trainer.learning_rate, rdn.trainer.batch_size) == (2e-2, 32)
    assert (srwm.trainer.learning_rate, srwm.trainer.batch_size) == (3e-2, 16)
    assert (rdn.trainer.epochs, rdn.train_size, rdn.trainer.evaluate_every) == (300, 10_000, 50)
    transformer = paper("transformer", LANGUAGES["parity"]())
    assert (transformer.core_positions, transformer.core_norm) == ("none", "post")
    assert (srwm.core_start, srwm.core_norm) == ("languages", "legacy_raw")
    assert small("srwm", LANGUAGES["dyck_1"]()).core_norm is None
    assert not rdn.trainer.similar_lengths and rdn.trainer.average == rdn.trainer.clip == 0
    assert paper("lstm", LANGUAGES["parity"]()).model().embedding == 128
    assert rdn.model().embedding == 16


def test_small_learns_slowly_where_strings_have_one_answer():
    """At the published rate, the LSTM stays at chance on even pairs."""
    asks, dense = small("lstm", LANGUAGES["even_pairs"]()), small("lstm", LANGUAGES["parity"]())
    assert (asks.trainer.learning_rate, asks.trainer.similar_lengths) == (3e-3, True)
    assert (dense.trainer.learning_rate, dense.trainer.similar_lengths) == (1e-2, False)
    assert small("transformer", LANGUAGES["reverse_string"]()).trainer.learning_rate == 1e-3


def test_small_trains_as_long_whether_a_memory_is_expected_to_fail_or_not():
    cores = ("delta_net", "lt", "transformer", "lstm")
    epochs = {small(core, LANGUAGES[name]()).trainer.epochs for core in cores for name in LANGUAGES}
    assert epochs == {48}


@pytest.mark.parametrize("core", CORES)
def test_every_core_reads_every_language(core):
    for kind in LANGUAGES.values():
        options = small(core, kind())
        assert SequenceOptions.from_dict(options.to_dict()) == options
    model = small(core, LANGUAGES["s3"]()).build()
    tokens = torch.zeros(3, 2, dtype=torch.long)
    assert model(tokens, torch.ones_like(tokens, dtype=torch.bool)).shape == (6, 6)


def test_a_core_without_a_configuration_has_one_of_the_search_space():
    assert configuration("parity", "gated_delta_net") == configuration("s3", "gated_delta_net")
    assert configuration("parity", "lstm").width == 32
    assert sequence_preset("small", "rdn", LANGUAGES["parity"]()).core_width == 4


def test_without_positions_a_transformer_says_the_same_at_every_position_of_a_power_of_a():
    """Bhattamishra et al. 2020, lemma C.4: uniform attention cannot recognise (aa)*."""
    torch.manual_seed(1)
    model = replace(small("transformer", LANGUAGES["aa"]()), core_window=40).build().eval()
    tokens = torch.zeros(40, 1, dtype=torch.long)
    logits = model(tokens, torch.ones_like(tokens, dtype=torch.bool))
    torch.testing.assert_close(logits, logits[:1].expand_as(logits))


def test_a_trained_model_answers_words(solved):
    saved = open_sequence_model(str(solved))
    assert saved.answers([]) == []
    assert not saved.model.training and saved.options.core == "lstm"
    for word in ("aa", "aaaaaaa"):
        assert saved.answers(list(word)) == [str(i % 2) for i in range(len(word))]
    with pytest.raises(ValueError, match=r"^unknown word 'b'; known: a"):
        saved.answers(["a", "b"])
    with pytest.raises(UserError, match=r"is a run of aa: use python .*formal_language"):
        open_sequence_model(solved, "list_ops")


def test_a_run_cannot_ask_for_a_model_larger_than_its_weights(solved, tmp_path):
    run = shutil.copytree(solved, tmp_path / "run")
    best = run / "checkpoints" / "best.pt"
    meta, content = read_meta(run), load_checkpoint(best)
    meta["args"]["core_width"] = content["flags"]["core_width"] = 2**15
    (run / "meta.json").write_text(json.dumps(meta))
    save_checkpoint(content, best)
    with pytest.raises(CheckpointError, match="do not fit its network"):
        open_sequence_model(run)
