"""The benchmark of language models: what it times and what it reports."""

import json

import pytest

from benchmarks import language_models
from benchmarks.language_models import LEFT_OUT, WHOLE, chosen, parser, rows

SAMPLES = {
    ("transformer", WHOLE): [2.0, 4.0, 3.0],
    ("rdn", WHOLE): [1.0, 2.0, 1.5],
    ("rdn", LEFT_OUT): [0.9, 1.0, 1.2],
}


def test_rates_are_medians_and_ratios_those_of_each_round():
    models = [{"core": core, "parameters": 7} for core in ("transformer", "rdn")]
    beside, rdn = rows(models, SAMPLES, tokens=30)
    assert rdn["tokens_per_second"] == pytest.approx(20)
    assert rdn["times_transformer"] == pytest.approx(2)
    assert rdn["memory_share"] == pytest.approx(0.2)
    assert rdn["published_times_transformer"] == pytest.approx(1.06)
    assert beside["memory_share"] is None


def test_the_papers_width_with_fewer_blocks_and_columns():
    words = ("--preset", "paper", "--layers", "2", "--columns", "3", "--span", "16")
    words += ("--micro-columns", "2")
    options = chosen(parser().parse_args(words), "rdn")
    assert (options.core_layers, options.core_width) == (2, 128)
    assert (options.trainer.columns, options.trainer.span) == (3, 16)
    assert options.trainer.micro_columns == 2
    assert options.precision == "float32"
    asked = parser().parse_args((*words, "--precision", "bfloat16"))
    assert chosen(asked, "rdn").precision == "bfloat16"


def test_it_runs(tmp_path):
    sizes = ("--columns", "2", "--span", "9", "--layers", "1", "--rounds", "1", "--seconds", "1")
    out = tmp_path / "found.json"
    precision = ("--precision", "float32")  # the preset has `auto`
    language_models.main(["--cores", "transformer", "lt", *sizes, *precision, "--json", str(out)])
    content = json.loads(out.read_text())
    assert content["what"] == "small preset, 2 columns, spans of 9, float32"
    assert [row["core"] for row in content["rows"]] == ["transformer", "lt"]
    assert content["rows"][1]["tokens_per_second"] > 0


def test_a_model_that_cannot_be_built_is_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        language_models.main(["--cores", "lt", "--layers", "1001"])
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "must be at most 1000, not 1001" in error
