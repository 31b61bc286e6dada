"""Tables, figures and searches of formal languages: their runs, their files, gaps."""

import csv
import json
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from fastweights.cores import CORES, build_core, core_config
from fastweights.experiments.formal_languages import figures as lengths
from fastweights.experiments.formal_languages import search, summary
from fastweights.experiments.formal_languages.figures import (
    LENGTHS,
    MODELS,
    languages,
    make_language_figure,
)
from fastweights.experiments.formal_languages.matrix import LOOKS, matrix_figure
from fastweights.experiments.formal_languages.search import space
from fastweights.experiments.formal_languages.theory import VERDICTS, said_of, sources, theory
from fastweights.experiments.rows import Row
from fastweights.experiments.sequences.figures import figures
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.sequences.table import SequenceTableOptions, make_sequence_table
from fastweights.host.errors import UserError
from fastweights.launch import formal_language
from fastweights.tasks import LANGUAGES
from tests.experiments.finished_runs import Finished

pytestmark = pytest.mark.usefixtures("forked_runs")


def test_the_published_tables_have_a_figure_for_each_model_language_and_bin():
    one, two = (figures("formal_language", number, "paper") for number in (1, 2))
    assert len(one) == 7 * 6 * 2 and len(two) == 4 * 2 * 2
    runs = {figure.run(1) for figure in one if figure.options.core == "rdn"}
    assert len(runs) == 6  # both bins come from one run
    assert all(figure.options.core_layers == 1 for figure in two)
    more = figures("formal_language", 1, "small", further=("mlstm",))[len(one) :]
    assert len(more) == 6 * 2 and {figure.published.mean for figure in more} == {None}


@pytest.mark.parametrize(
    ("command", "table", "core", "width"),
    [
        ("formal_language", 2, "lstm", 32),
        ("list_ops", 7, "feedforward", None),
        ("list_ops", 7, "rdn", 64),  # not an LSTM's eighth
        ("code_execution", 6, "gru", 128),
    ],
)
def test_an_added_core_has_its_own_sizes_or_those_of_a_row_like_it(command, table, core, width):
    found = figures(command, table, "small", further=(core,))
    added = [figure for figure in found if figure.options.core == core]
    assert added
    for figure in added:
        sizes = core_config(core, **dict(figure.options.core_options()))
        assert getattr(sizes, "width", None) == width
        assert figure.options.build()


def test_the_search_space_is_the_published_one():
    assert len(space("rdn")) == 3 * 3 * 3 * 3 * 6 * 3  # 1,458
    assert len(space("lstm")) == 4 * 6 * 3
    assert len(set(map(str, space("rdn")))) == 1458
    (one,) = (
        s
        for s in space("rdn")
        if str(s).startswith("layers=1 heads=2 width=8 feedforward=32 rate=0.02 batch=64")
    )
    assert dict(one.sizes)["feedforward"] == 32  # four times the width


def test_a_search_writes_each_setting_with_its_seeds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search, "RATES", (1e-2,))
    monkeypatch.setattr(search, "BATCHES", (16,))
    monkeypatch.setattr(search, "LSTM_WIDTHS", (8, 16))
    monkeypatch.chdir(tmp_path)
    given = ["--task", "aa", "--core", "lstm", "--preset", "small", "--sizes", "2", "8"]
    given += ["--train-size", "32", "--evaluate-every", "1", "--embedding", "4"]
    given += ["--test-lengths", "20", "--length-size", "2"]
    asked = ["--search", "grid", "--seeds", "1", "--epochs-at-most", "1", "--runs", "found"]
    assert formal_language.main([*given, *asked]) == 0
    out = tmp_path / "found" / "search-aa-lstm-small-1-epochs"
    results = json.loads((out / "results.json").read_text())
    assert [one["setting"] for one in results] == [
        "width=8 rate=0.01 batch=16",
        "width=16 rate=0.01 batch=16",
    ]
    text = (out / "search.md").read_text()
    assert "| setting | held out | each seed | bin0 | bin1 | seeds solved |" in text
    assert (
        "The best baseline has 0.0 % of bin0 (always the commonest answer), 0.0 % of bin1" in text
    )
    assert text.count("of 1 |") == 2
    assert "finished aa-lstm-width8" in capsys.readouterr().out
    monkeypatch.setattr(search, "LSTM_WIDTHS", (8,))
    other = [*asked, "--epochs-at-most", "2", "--legacy-selection"]  # is in nobody's way
    assert formal_language.main([*given, *other]) == 0
    name = "search-aa-lstm-small-legacy-selection-2-epochs"
    assert "| setting | both bins | each seed |" in (out.with_name(name) / "search.md").read_text()


def test_a_setting_with_failed_seeds_ranks_behind_those_without():
    def row(*values: float, failed: int = 0) -> Row:
        seeds = range(len(values) + failed)
        return Row(
            labels={},
            seeds=seeds,
            values=dict(enumerate(values)),
            failed=[*seeds][len(values) :],
        )

    best, second = row(90.0, 90.0, 90.0), row(80.0, 90.0, 80.0)
    lucky, none, open_ = row(100.0, failed=2), row(failed=3), row()
    assert search.ranked([lucky, none, second, open_, best]) == [best, second, open_, lucky, none]


def test_figure_8_has_every_length_of_a_run(tmp_path, monkeypatch):
    sizes = {"train_size": 32, "valid_size": 4, "test_size": 4}
    monkeypatch.setitem(lengths.SIZES, "small", (1, sizes))
    monkeypatch.setattr(lengths, "STRINGS", 60)
    monkeypatch.setattr(lengths, "languages", lambda: languages()[:1])
    asked = ["--figure", "8", "--preset", "small", "--seeds", "1", "--runs", str(tmp_path)]
    assert formal_language.main([*asked, "--kernels", "reference", "--only", "lstm"]) == 0
    out = tmp_path / "figure8-small"
    with (out / "figure_8.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["length"]) for row in rows] == list(LENGTHS)
    assert {row["language"] for row in rows} == {"L5"}
    results = json.loads((out / "results.json").read_text())
    assert {one["options"]["kernels"] for one in results} == {"reference"}
    (lstm,) = (one["lengths"] for one in results if one["options"]["core"] == "lstm")
    shown = [float(row["mean"]) for row in rows if row["model"] == "LSTM"]
    assert shown == pytest.approx([100 * of_length["answer_accuracy"] for of_length in lstm])
    lines = (out / "figure_8.md").read_text().splitlines()
    lines = [line for line in lines if line.startswith("| L5") and "| LSTM |" in line]
    baselines = [float(line.split("|")[6]) for line in lines]
    # The commonest label's share: of true labels at length 64, of false ones from 128 on.
    assert baselines == pytest.approx([62.8, 50.7, 62.7, 72.4, 79.9, 85.3], abs=5)
    assert (out / "figure_8_l5.png").read_bytes().startswith(b"\x89PNG")


def test_a_core_that_the_figure_lacks_is_named(tmp_path):
    asked = SequenceTableOptions(seeds=(1,), runs=tmp_path, only=("lstm", "rnd"))
    with pytest.raises(UserError, match="--only rnd: this table has lstm, qrnn"):
        make_language_figure(8, "small", asked)
    assert not any(tmp_path.iterdir())


def test_attention_alone_reaches_over_the_longest_string():
    """The window of a convolution is a size of its weights."""
    for core in ("qrnn", "cnn", "transformer"):
        options = SequenceOptions(task=LANGUAGES["parity"](), core=core)
        attends = core == "transformer"
        assert options.reaching(50) == (replace(options, core_window=50) if attends else options)


def test_the_figures_models_are_the_papers():
    for language in languages():
        options = lengths.options(language, "LSTM", "paper")
        options.check()
        assert (options.train_size, options.trainer.batch_size, options.embedding) == (
            100_000,
            16,
            4,
        )
        assert options.core_width == 10
    assert MODELS["QRNN (D2)"]["decoder"] == 10
    assert [language.name for language in languages()] == ["l5", "a_n_b_n_sigma", "a_n_b_n_sigma"]


def test_a_table_says_what_baselines_score_and_what_solving_took(tmp_path, capsys):
    asked = SequenceTableOptions(
        seeds=(1,), only=("lstm",), settings=("aa",), epochs_at_most=1, runs=tmp_path
    )
    assert make_sequence_table("formal_language", 1, "small", asked) == 0
    text = capsys.readouterr().out
    head = "| paper | best baseline | seeds solved | updates, seconds to solve |"
    assert head in text
    (line,) = (line for line in text.splitlines() if "| (aa)* | LSTM | `lstm` | bin1" in line)
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[7:9] == ["100.0", "0.0 (always the commonest answer)"]
    assert "e-LSTM" in text  # a model that was not run has only the paper's figure


def test_a_summary_has_a_line_a_memory_and_a_column_a_language(tmp_path, capsys):
    asked = SequenceTableOptions(
        seeds=(1,), only=("lstm",), settings=("aa",), epochs_at_most=1, runs=tmp_path
    )
    assert summary.summarise_languages("small", asked, {"kernels": "reference"}) == 0
    out = tmp_path / "summary-small-1-epochs"
    lines = [line for line in (out / "summary.md").read_text().splitlines()[2:] if line]
    head, _, kinds, line, baseline, says, theory, source = lines
    assert (head, kinds) == ("| memory | (aa)* |", "|  | regular |")
    assert baseline == "| best baseline | 0.0 |"
    assert (says, theory) == ("What theory says:", "- (aa)*: can: `lstm` [1]")
    assert source.startswith("[1] Merrill 2019")
    (result,) = json.loads((out / "results.json").read_text())
    assert result["options"]["kernels"] == "reference"
    outcome, share = summary.state(result), 100 * result["bin1"]["sequence_accuracy"]
    is_solved = outcome in ("solved", "generalises")
    assert line == f"| `lstm` | {outcome}{'' if is_solved else f' ({share:.1f})'} |"
    assert (out / "summary.png").read_bytes().startswith(b"\x89PNG")
    assert "| regular | aa | `lstm` |" in (out / "pairs.md").read_text()
    for flag, said in (
        (replace(asked, only=("rnd",)), "--only"),
        (replace(asked, settings=("a",)), "--settings"),
    ):
        with pytest.raises(UserError, match=f"unknown {said}"):
            summary.summarise_languages("small", flag)


def test_the_matrix_shows_outcomes_shares_and_theory():
    def row(language, memory, values):
        return Row(labels={"language": language, "memory": memory}, seeds=(1, 2), values=values)

    rows = [row("parity", "lstm", {1: 100.0, 2: 100.0}), row("parity", "lt", {1: 0.0})]
    rows += [row("reverse_string", "lstm", {1: 41.5}), row("reverse_string", "lt", {})]
    states = {("parity", "lstm"): "solved", ("parity", "lt"): "fails"}
    states["reverse_string", "lstm"] = "fits"
    figure = matrix_figure(rows, states, summary.MEANINGS)
    (axes,) = figure.axes
    texts = {(t.get_position(), t.get_text()) for t in axes.texts}
    assert texts == {
        ((0.5, 0.52), "100 +"),
        ((0.5, 1.52), "0 \N{MINUS SIGN}"),
        ((1.5, 0.52), "42"),
    }
    assert [t.get_text() for t in axes.get_xticklabels()] == ["parity", "reverse\nstring"]
    (classes,) = axes.child_axes
    assert [t.get_text() for t in classes.get_xticklabels()] == ["regular", "context-\nfree"]
    assert list(classes.get_xticks()) == [0.5, 1.5]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["lstm", "lt"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == list(summary.MEANINGS.values())
    colours = [to_hex(patch.get_facecolor()) for patch in axes.patches]
    assert colours == [LOOKS[state][0].lower() for state in ("solved", "fails", "fits")]


def test_theory_is_about_languages_and_memories_that_there_are():
    assert {language for language, _ in theory()} <= set(LANGUAGES)
    assert {memory for _, memory in theory()} <= set(summary.memories())
    assert {statement.verdict for statement in theory().values()} == set(VERDICTS)
    asked = ["lt", "lstm", "delta_net_2"]
    numbers = {source: place for place, source in enumerate(sources(["parity"], asked), 1)}
    said = said_of("parity", asked, numbers)
    assert said == "can: `lstm` [2], `delta_net_2` [3]; cannot: `lt` [1]"
    assert said_of("bucket_sort", asked, numbers) == ""


def measured(bin0: float, bin1: float, *longer: float) -> dict:
    """Return a result in which these shares of the strings are right, the last of test lengths."""
    right = {"bin0": bin0, "bin1": bin1}
    return {
        **{split: {"sequence_accuracy": share} for split, share in right.items()},
        "lengths": [{"sequence_accuracy": share} for share in longer],
        "options": {"test_lengths": [500, 2_000]},
        "baselines": {split: {} for split in right},
    }


def test_a_pair_has_the_outcome_of_each_seed_and_the_colour_of_the_worst():
    solves, fits, fails = measured(1, 1), measured(1, 0.999), measured(0.989, 1)

    def row(*results, failed=()):
        by_seed = {seed: Finished(result) for seed, result in enumerate(results, 1)}
        values = {seed: summary.longer(run.measured) for seed, run in by_seed.items()}
        return Row(labels={}, seeds=range(1, 5), values=values, runs=by_seed, failed=failed)

    every = row(fits, solves, fails, failed=[4])
    assert summary.outcome(every) == "solved 1, fits 1, fails 1, failed 1"
    assert summary.worst(every) == "fails"
    assert summary.worst(row(fits, solves)) == "fits"
    assert summary.outcome(row(solves, solves)) == "solved"
    assert summary.outcome(row(solves, failed=[2])) == "solved 1, failed 1"


def test_outcomes_are_counted_over_seeds():
    shares = (1, 1), (1, 1, 1), (1, 1, 1, 0.95), (1, 1, 1, 1), (0.99, 1, 1, 1), (0.98, 1)
    outcomes = [summary.state(measured(*one)) for one in shares]
    assert outcomes == ["solved", "solved", "solved", "generalises", "fits", "fails"]
    assert {core for core, _ in summary.memories().values()} <= set(CORES)
    assert "rdn_large" not in summary.memories()
    for name in ("delta_net_2", "gated_delta_net_2"):
        core, options = summary.memories()[name]
        assert core == name.removesuffix("_2") and options["core_max_write_strength"] == 2
    core, options = summary.memories()["delta_net_2"]
    build_core(core, 8, **{name.removeprefix("core_"): value for name, value in options.items()})
