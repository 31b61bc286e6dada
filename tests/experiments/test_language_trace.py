"""Traces: the component follows the machine's state; pictures show the state; bad strings."""

import csv
import sys
from random import Random
from typing import NamedTuple

import pytest
import torch

from fastweights.experiments.formal_languages.pictures import trace_figure
from fastweights.experiments.formal_languages.trace import ANSWERS, STATES, trace, write_csv
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.launch import formal_language
from fastweights.tasks import LANGUAGES, Language
from tests.evaluation.drawings import words_in
from tests.launch.test_bad_input import error_of

SATURATED = 20.0  # a gate's bias at which it is 1
SHOWN = {  # words in the picture of an example
    "a_n_b_n_sigma": {"language's machine: b to come", "a", "b", "in"},
    "a_n_b_n_c_n": {"machine: b to come", "machine: c to come"},
    "s3": {"123", "213", "231", "312"},
    "even_pairs": {"aa", "ab"},
    "reverse_string": {"kept: a", "kept: b", "symbols that the machine keeps"},
    "missing_duplicate": {"kept: 0", "kept: 1", "kept: _"},
    "modular_arithmetic_brackets": {"2*", "_-", "1+", "4"},
    "bucket_sort": {"ones", "threes", "fours", "2"},
    "reset_dyck_1": {"state of the language's machine", "2"},
}


def untrained(task, core="lstm", width=4):
    """Return an untrained model of a language, or of the known language of that name."""
    task = LANGUAGES[task]().small() if isinstance(task, str) else task
    options = SequenceOptions(task=task, core=core, core_width=width, embedding=width, decoder=0)
    torch.manual_seed(1)
    return options.build(), options


def one_cell(task, forget, candidate, of_symbols=0.0):
    """Return an LSTM of one cell with constant gates, and its options.

    `forget`: 0 or 1. The candidate is the tangent of `candidate`, plus `of_symbols` for the first
    symbol and minus it for the second.
    """
    model, options = untrained(task, width=1)
    gates = [SATURATED, SATURATED * (2 * forget - 1), candidate, SATURATED]
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
        model.core.cell.bias_ih.copy_(torch.tensor(gates))
        model.core.cell.weight_ih[2] = of_symbols
        model.embedding.weight[:2] = torch.tensor([[1.0], [-1.0]])
    return model, options


def example(name) -> list[str]:
    """Return the symbols and questions of the example in the language's file."""
    if name == "s5":  # its file has an example of S3
        return ["21345", "23451"]
    lines = (sys.modules[LANGUAGES[name].__module__].__doc__ or "").splitlines()
    return next(line for line in lines if line.startswith("    ")).split()


def test_a_clock_does_not_follow_a_machine_that_keeps_the_string():
    model, options = one_cell("missing_duplicate", forget=1, candidate=0.1)
    found = trace(model, options, "0110_1")
    assert found.component in ("cell[0]", "hidden[0]")
    assert found.values == sorted(found.values)  # it counts the symbols
    assert found.groups == ANSWERS and found.explained < 0.05
    assert "between the machine's answers (nearly" in " ".join(words_in(trace_figure(found, "x")))


def test_a_cell_that_keeps_the_last_symbol_follows_the_state_that_has_it():
    """Whether the last symbol equals the first, the number shown before, says nothing of it."""
    model, options = one_cell("even_pairs_prefixes", forget=0, candidate=0, of_symbols=1)
    found = trace(model, options, "abba")
    assert found.groups == STATES and found.explained > 0.999
    assert [value > 0 for value in found.values] == [True, False, False, True]


def test_acceptance_and_rejection_are_different_states(tmp_path):
    model, options = untrained("a_n_b_n_sigma")
    machine = {}
    for text in ("aabbba", "aabaab"):
        write_csv(trace(model, options, text), tmp_path / "trace.csv")
        with (tmp_path / "trace.csv").open() as file:
            machine[text] = [row["machine"] for row in csv.DictReader(file)]
    assert machine["aabbba"][3:] == ["phase=in b_to_come=0"] * 3
    assert machine["aabaab"][3:] == ["phase=out b_to_come=0"] * 3
    assert machine["aabbba"][:3] == machine["aabaab"][:3]
    assert len({*machine["aabbba"], *machine["aabaab"]}) == 5


def test_whether_a_b_was_read_is_no_counter():
    """A cell that says only this explains no share of the counter's size."""
    model, options = one_cell("a_n_b_n", forget=0, candidate=0, of_symbols=1)
    assert trace(model, options, "aabb").explained < 0.1


@pytest.mark.parametrize("name", SHOWN)
def test_the_picture_shows_the_state(name):
    if name == "bucket_sort":
        text = "31413"
    elif name == "modular_arithmetic_brackets":
        text = "(2*(-(1+1)-3))"
    else:
        text = " ".join(example(name))
    words = words_in(trace_figure(trace(*untrained(name), text), name))
    assert SHOWN[name] <= {*words} and "right answers" in words


@pytest.mark.parametrize("name", [*SHOWN, "parity", "s5", "shuffle_2", "stack_manipulation"])
def test_a_picture_of_60_symbols_fits_and_has_every_symbol_and_right_answer(name):
    model, options = untrained(name)
    task = options.task
    sample = (task.every("bin0") or [task.sample_of_length(30, Random(1))])[-1]
    found = trace(model, options, " ".join(task.words[token] for token in sample.tokens))
    assert 30 <= len(found.symbols) <= 80
    words = words_in(trace_figure(found, name))
    for word in {*found.symbols, *filter(None, found.expected)}:
        assert words.count(word) >= found.symbols.count(word) + found.expected.count(word)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with short runs of three languages."""
    folder = tmp_path_factory.mktemp("runs")
    small = ("--core", "lstm", "--preset", "small", "--core-width", "4", "--embedding", "4")
    small += ("--train-size", "8", "--epochs", "1", "--test-lengths", "8", "--num-threads", "1")
    small += ("--valid-size", "4", "--test-size", "4")
    for name in ("a_n_b_n", "reset_dyck_1", "reverse_string"):
        where = ("--task", name, "--sizes", "2", "8", "--savedir", str(folder), "--xpid", name)
        assert formal_language.main([*small, *where]) == 0
    return folder


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a_n_b_n", "bbbb", "no string with 'b' at position 1; a string is, for example, a a a b"),
        ("a_n_b_n", "aabbb", "no string with 'b' at position 5"),
        ("a_n_b_n", "aba", "no string with 'a' at position 3"),
        ("reset_dyck_1", "))", "no string with ')' at position 1; a string is, for example, ( ( )"),
        ("reverse_string", "a?b", "the questions of reverse_string follow a string; a string is"),
        ("reverse_string", "?", "the questions of reverse_string follow a string"),
        ("reverse_string", "a??", "questions after this string of reverse_string: at most 1, not"),
    ],
)
def test_what_is_no_string_is_one_line_and_leaves_no_picture(runs, name, text, says, capsys):
    said = error_of(formal_language.main, ["--trained", runs / name, "--trace", text], capsys)
    assert says in said
    assert not list((runs / name).glob("trace.*"))


@pytest.mark.parametrize(
    ("name", "text", "answers"),
    [("a_n_b_n", "aab", 3), ("reset_dyck_1", "(()1(", 5), ("reverse_string", "ab?", 1)],
)
def test_the_beginning_of_a_string_is_traced(runs, name, text, answers, capsys):
    assert formal_language.main(["--trained", str(runs / name), "--trace", text]) == 0
    assert f" of {answers}\n" in capsys.readouterr().out
    for written in ("trace.csv", "trace.png"):
        (runs / name / written).unlink()


def test_a_trace_of_an_own_core_takes_no_training_options(runs, own_module, capsys):
    own_module("traced_memory", "from fastweights.cores import CORES\nmemory = CORES['lstm']\n")
    run, given = runs / "a_n_b_n", ("--core", "traced_memory:memory", "--train-size", "7")
    said = error_of(formal_language.main, ["--trained", run, "--trace", "ab", *given], capsys)
    assert "--train-size cannot be used with --trace" in said


def test_a_memory_that_never_changes_is_one_line():
    model, options = one_cell("parity", forget=0, candidate=0)
    with pytest.raises(ValueError, match="no number in the core's memory changes"):
        trace(model, options, "0110")


class OfLettersAB(Language):
    """Abstract: a user's language, whose answers say whether the last symbol is a b."""

    alphabet = ("a", "b")
    answers = ("0", "1")

    def step(self, state, symbol):
        return self.following(state, symbol), str(int(symbol == "b"))


class Named(OfLettersAB):
    """The state is a label; labels have different lengths."""

    name = title = "named"
    start = "a"

    def following(self, state, symbol):
        return {"a": "b", "b": "bad"}.get(state, "a") if symbol == "b" else state


class Last(NamedTuple):
    """The last symbol, and whether the first is a b."""

    is_a: bool = False
    is_b: bool = False
    begins_with_b: bool | None = None


class OfTruths(OfLettersAB):
    """The state has truth values alone."""

    name = title = "of_truths"
    start = Last()

    def following(self, state, symbol):
        begins = symbol == "b" if state.begins_with_b is None else state.begins_with_b
        return Last(symbol == "a", symbol == "b", begins)


class OfTheFirst(OfTruths):
    name = title = "of_the_first"
    untraced = ("is_a", "is_b")


class OfNothing(OfTruths):
    name = title = "of_nothing"
    untraced = Last._fields


class Growing(OfLettersAB):
    """The state is a stack, which the class does not say."""

    name = title = "growing"
    start = ()

    def following(self, state, symbol):
        return (*state, symbol) if symbol == "a" else state[:-1]


class GrowingStack(Growing):
    name = title = "growing_stack"
    is_stack = True


@pytest.mark.parametrize(
    ("kind", "shown", "hidden"),
    [
        (Named, {"a", "b", "bad"}, {"kept: b", "kept: d"}),
        (OfTruths, {"is a", "is b", "begins with b"}, set()),
        (OfTheFirst, {"language's machine: begins with b"}, {"is a", "machine: is a"}),
        (Growing, {"('a',)", "('a', 'a')"}, {"kept: a"}),
        (GrowingStack, {"kept: a"}, {"('a',)"}),
    ],
)
def test_the_picture_of_a_new_language_shows_what_its_class_declares(kind, shown, hidden):
    found = trace(*untrained(kind(sizes=(2, 8))), "aabbba")
    words = {*words_in(trace_figure(found, "x"))}
    assert shown <= words and not hidden & words


@pytest.mark.parametrize(("kind", "follows"), [(OfTruths, True), (OfTheFirst, False)])
def test_truth_values_count_unless_the_class_says_otherwise(kind, follows):
    """A cell with the sign of the last symbol does not know the first."""
    model, options = one_cell(kind(sizes=(4, 8)), forget=0, candidate=0, of_symbols=1)
    found = trace(model, options, "abba")
    assert found.explained > 0.999 if follows else found.explained < 0.1


def test_states_that_are_all_one_group_are_one_line():
    says = "no number can follow the machine of of_nothing: .* untraced than is_a, is_b, begins_wi"
    with pytest.raises(ValueError, match=says) as error:
        trace(*untrained(OfNothing(sizes=(2, 8))), "abba")
    assert "\n" not in str(error.value)
