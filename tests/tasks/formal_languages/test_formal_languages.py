"""Every language: its example, its answers against a second computation, splits, strings."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random

import pytest

from fastweights.tasks import LANGUAGES, UNASKED, Language, formal_languages
from fastweights.tasks.formal_languages.counter.a_n_b_n_sigma import ANBNSigma
from fastweights.tasks.formal_languages.counter.brackets import grammar_string, nested, uniform
from fastweights.tasks.formal_languages.counter.reset_dyck_1 import ResetDyck1
from fastweights.tasks.formal_languages.counter.shuffle_2 import Shuffle2
from fastweights.tasks.sequences import Sequences, draw_splits, split_sizes
from tests.tasks.formal_languages.second_opinions import (
    OPINIONS,
    Answers,
    legacy_a_n_b_n_sigma,
    of_prefixes,
    reduced,
)

pytestmark = pytest.mark.usefixtures("shapes_unchecked")  # the machines make millions of steps
EVERY = pytest.mark.parametrize("name", LANGUAGES)
FOLDER = Path(formal_languages.__file__).resolve().parent
OPINIONS_FILE = "tests/tasks/formal_languages/second_opinions.py"


def opinion_of(name: str) -> Callable[..., Answers]:
    if name not in OPINIONS:
        pytest.fail(f"{OPINIONS_FILE} lacks {name!r}: add its second opinion to OPINIONS")
    return OPINIONS[name]


def words(language, sample) -> list[str]:
    return [language.words[token] for token in sample.tokens]


def answers(language, sample) -> list[str | None]:
    return [None if t == UNASKED else language.answers[t] for t in sample.targets]


@EVERY
def test_the_example_of_its_file(name):
    language = LANGUAGES[name]()
    if name == "s5":  # its file is that of S3, whose example it has
        return
    module = sys.modules[type(language).__module__]
    lines = (module.__doc__ or "").splitlines()
    example = [line.split() for line in lines if line.startswith("    ")]
    said = (
        f"the docstring of {module.__file__} lacks an example: two lines, indented by four spaces"
    )
    assert len(example) == 2, said
    symbols, expected = example
    assert [answer or "_" for _, answer in language.run(symbols)] == expected


@EVERY
def test_answers_are_those_of_a_second_opinion(name):
    language, random = LANGUAGES[name](), Random(1)
    count = 3000 if language.sizes[1] <= 50 and not language.one_a_size else 300
    opinion = opinion_of(name)
    for place in range(count):
        split = language.splits[place % 4] if place % 10 == 0 else "train"
        sample = language.sample_of(split, random)
        assert answers(language, sample) == opinion(words(language, sample))


@pytest.mark.parametrize(
    "name",
    ["parity", "dyck_1", "l5", "a_n_b_n_sigma", "reset_dyck_1", "abab", "even_pairs_prefixes"],
)
def test_prefix_labels_of_all_short_strings(name):
    """Include strings that the sampler does not draw, but none that begins as no string does."""
    language = LANGUAGES[name]()
    for length in range(1, 11 if len(language.alphabet) == 2 else 8):
        for symbols in product(language.alphabet, repeat=length):
            text = "".join(symbols)
            if "dyck" in name and any(")" in reduced(part, "()") for part in text.split("1")):
                continue
            if name == "abab" and not ("ab" * 5).startswith(text):
                continue
            assert [answer for _, answer in language.run(symbols)] == OPINIONS[name](symbols)


def test_the_published_labels_of_a_n_b_n_sigma():
    language, opinion = ANBNSigma(legacy_labels=True), of_prefixes(legacy_a_n_b_n_sigma, "1", "0")
    for length in range(1, 11):
        for symbols in product("ab", repeat=length):
            assert [answer for _, answer in language.run(symbols)] == opinion(symbols)
    shares = []
    for one in (language, ANBNSigma()):
        random = Random(1)
        targets = [t for _ in range(2000) for t in one.sample(random).targets]
        shares.append(sum(targets) / len(targets))
    # Expected: 0.19 to 0.21, and 0.41 to 0.64.
    assert 0.18 < shares[0] < 0.22 and 0.40 < shares[1] < 0.65


@EVERY
def test_its_class_is_its_folder_and_it_has_a_file_of_its_own(name):
    kind = LANGUAGES[name]
    assert kind.name == name and kind.title
    assert (
        Path(sys.modules[kind.__module__].__file__).parent.name.replace("_", "-") == kind.family()
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.py")), ids=lambda path: path.stem)
def test_every_language_of_a_file_is_registered(path):
    module = import_module(f"{formal_languages.__name__}.{path.parent.name}.{path.stem}")
    for kind in vars(module).values():
        if not (isinstance(kind, type) and issubclass(kind, Language)) or not hasattr(kind, "name"):
            continue  # abstract, or something else
        if kind.__module__ == module.__name__:
            assert LANGUAGES.get(kind.name) is kind, (
                f"{FOLDER / '__init__.py'} lacks {kind.__name__} of {path.name}: import it and add "
                "it to _LANGUAGES"
            )


def test_every_class_has_languages_and_every_second_opinion_is_of_one():
    folders = {path.parent.name.replace("_", "-") for path in FOLDER.glob("*/__init__.py")}
    assert {kind.family() for kind in LANGUAGES.values()} == folders
    unknown = set(OPINIONS) - set(LANGUAGES)
    assert not unknown, f"{OPINIONS_FILE} has opinions of no language: {sorted(unknown)}"


class Piled(Language):
    """A language that declares what its state is not."""

    name = title = "piled"
    alphabet = answers = ("a",)

    def step(self, state, symbol):
        return state + 1, "a"


def test_a_state_of_another_kind_than_declared_is_refused_before_training(monkeypatch):
    Piled().check()
    monkeypatch.setattr(Piled, "untraced", ("depht",))
    with pytest.raises(ValueError, match="piled leaves 'depht' untraced; parts of its state: none"):
        Piled().check()
    monkeypatch.setattr(Piled, "untraced", ())
    monkeypatch.setattr(Piled, "is_stack", True)
    with pytest.raises(ValueError, match="must be a string or a plain tuple, not 0"):
        Piled().check()


@EVERY
def test_splits_have_the_sizes_that_they_say_and_share_no_string(name):
    language = LANGUAGES[name]()
    splits = draw_splits(language, split_sizes(language, 60, 20, 20), seed=1)
    assert list(splits) == ["train", "valid", "bin0", "bin1"]
    low, high = language.sizes
    longest = {split: int(splits[split].lengths.max()) for split in splits}
    assert longest["train"] < longest["bin1"]
    strings = [{s.tokens for s in splits[split].samples()} for split in splits]
    if language.one_a_size:
        everything = [size for size in range(low, high + 1) if language.has(size)]
        assert strings[0] <= strings[2] and len(strings[2]) == len(everything)
        assert not strings[3] & (strings[0] | strings[1])
        assert len(strings[1]) == len(splits["valid"].lengths)
    else:
        assert sum(map(len, strings)) == 120
        assert len(set().union(*strings)) == 120
    again = draw_splits(language, split_sizes(language, 60, 20, 20), seed=1)
    assert all((splits[split].tokens == again[split].tokens).all() for split in splits)


def test_half_of_what_selects_the_weights_is_longer_than_what_trains_them():
    """So weights that fit the trained lengths alone are not the best."""
    language, random = LANGUAGES["cycle_navigation"](), Random(1)
    drawn = [len(language.sample_of("valid", random).tokens) - 1 for _ in range(1000)]
    longer = [size for size in drawn if size > 50]
    assert 430 < len(longer) < 570
    assert set(drawn) == set(range(2, 101))
    # Of one string a size, those of Bin1 must stay unseen.
    held_out = [len(sample.tokens) for sample in LANGUAGES["aa"]().every("valid")]
    assert held_out == [*range(2, 51, 2), *range(102, 111, 2)]


@EVERY
@pytest.mark.parametrize("length", [500, 2001])
def test_strings_of_any_length(name, length):
    language = LANGUAGES[name]()
    sample = language.sample_of_length(length, Random(1))
    symbols = [word for word in words(language, sample) if word != "?"]
    factor = {"a_n_b_n": 2, "a_n_b_n_c_n": 3}.get(name, 1)
    if name == "reset_dyck_1":  # part of a string, a reset, and a string
        assert symbols.index("1") <= length and length - 2 <= len(symbols) - symbols.index("1") - 1
    else:
        assert length - max(2, language.multiple) < len(symbols) / factor <= length
    assert language.labelled(symbols) == sample


def test_strings_of_parity_have_even_ones_and_the_published_lengths():
    """Of a geometric distribution with mean 26, cut to 2 .. 50: median 17, a tenth of 50."""
    language, random = LANGUAGES["parity"](), Random(1)
    strings = [words(language, language.sample(random)) for _ in range(2000)]
    assert all(string.count("1") % 2 == 0 for string in strings)
    lengths = sorted(map(len, strings))
    assert 15 <= lengths[1000] <= 20
    assert 0.06 < sum(length == 50 for length in lengths) / 2000 < 0.13


def test_brackets_nest():
    random = Random(1)
    for low, high in ((2, 50), (52, 100), (2, 2), (500, 500), (998, 1001)):
        for _ in range(50):
            string = nested(random, low, high)
            assert low <= len(string) <= high and not reduced(string, "()")
    assert not reduced(uniform(random, 0) + uniform(random, 5, ("[]",)), "[]")
    assert {len(nested(random, 500, 506)) for _ in range(60)} == {500, 502, 504, 506}


@pytest.mark.parametrize("name", ["dyck_1", "reset_dyck_1"])
def test_a_long_string_of_one_length_is_not_searched_for(name, monkeypatch):
    """Of the grammar's strings of up to 398 symbols, about one in 10,000 has exactly 398."""
    monkeypatch.delattr("fastweights.tasks.formal_languages.counter.brackets._grow")
    language, random = LANGUAGES[name](), Random(1)
    lengths = {len(language.string(random, 398, 398)) for _ in range(20)}
    assert min(lengths) >= 398 and (max(lengths) == 398 or name == "reset_dyck_1")


def grown(random: Random, outside: int, longest: int) -> str:
    """Return a string of the grammar as `brackets.py` states it, by recursion."""
    if outside >= longest:
        return ""
    share, string = random.random(), ""
    if share < 1 / 2:
        string = random.choice(("()",))[0] + grown(random, outside + 2, longest) + ")"
    elif share < 3 / 4:
        string = grown(random, outside, longest) + grown(random, outside, longest)
    return string if len(string) <= longest else ""


def test_the_grammar_needs_no_recursion():
    """The same strings and draws, but for strings that nest too deep for Python."""
    ours, theirs = Random(1), Random(1)
    for longest in (2, 10, 50, 200):
        for _ in range(500):
            assert grammar_string(ours, longest) == grown(theirs, 0, longest)
    assert ours.random() == theirs.random()
    limit, random = sys.getrecursionlimit(), Random(1)
    sys.setrecursionlimit(len(inspect.stack(0)) + 40)
    try:
        strings = [grammar_string(random, 400) for _ in range(500)]
    finally:
        sys.setrecursionlimit(limit)
    assert max(map(len, strings)) > 100


def test_expressions_are_of_every_depth():
    """An operand may be long and the other short, not only both of half the length."""
    language, random = LANGUAGES["modular_arithmetic_brackets"](), Random(1)
    depths = set()
    for _ in range(200):
        symbols = words(language, language.sample_of_length(29, random))
        depths.add(max(symbols[:end].count("(") - symbols[:end].count(")") for end in range(30)))
    assert max(depths) - min(depths) >= 3


def test_the_cycle_lemma_makes_every_string_equally_likely():
    random, counts = Random(1), {}
    for _ in range(5000):
        string = uniform(random, 3)
        counts[string] = counts.get(string, 0) + 1
    assert len(counts) == 5  # Catalan's number
    assert all(abs(count / 5000 - 0.2) < 0.03 for count in counts.values())


def test_shuffled_brackets_cross_unless_the_published_strings_are_asked_for():
    def crossing(language) -> float:
        random = Random(1)
        strings = ["".join(words(language, language.sample(random))) for _ in range(500)]
        both = [s for s in strings if "(" in s and "[" in s]
        pairs = ("()", "[]")

        def nests(s: str) -> bool:
            while any(pair in s for pair in pairs):
                for pair in pairs:
                    s = s.replace(pair, "")
            return not s

        return sum(not nests(s) for s in both) / len(both)

    assert crossing(Shuffle2(legacy=True)) == 0
    assert crossing(Shuffle2()) > 0.8


def test_either_kind_of_shuffled_brackets_may_have_any_share():
    language, random = Shuffle2(), Random(1)
    strings = [words(language, language.sample(random)) for _ in range(500)]
    shares = [2 * string.count("(") / len(string) for string in strings]
    assert 0.45 < sum(shares) / 500 < 0.55
    assert sum(share < 0.25 for share in shares) > 80 < sum(share > 0.75 for share in shares)


def test_a_counter_that_never_resets_scores_as_the_published_linear_transformer():
    """Published: 44.5 % and 41.1 %; with the published generator we get 46.7 % and 41.6 %."""
    language = ResetDyck1()
    (machine,) = language.rivals().values()
    for split, published in (("bin0", 46.7), ("bin1", 41.6)):
        samples = draw_splits(language, {split: 1000}, seed=1)[split].samples()
        right = [machine(words(language, s)) == answers(language, s) for s in samples]
        assert abs(100 * sum(right) / len(right) - published) < 4


@pytest.mark.parametrize(
    ("name", "sizes", "says"),
    [
        ("aa", (1, 1), "aa has no strings of sizes 1 to 1: its sizes are 2, 4, 6, ...; widen --s"),
        ("abab", (5, 7), "its sizes are 4, 8, 12, ..."),
        ("missing_duplicate", (3, 3), "its sizes are 2, 4, 6, ..."),
        ("modular_arithmetic", (2, 2), "has no strings of sizes 2 to 2: its sizes are 1, 3, 5"),
        (
            "parity",
            (5, 2),
            "--sizes must be two sizes, the smaller first, above 0 and at most 1,000,000, not 5 2",
        ),
        ("parity", (2, 10**7), "at most 1,000,000, not 2 10000000"),
        ("parity", (0, 2), "not 0 2"),
        ("parity", (2, 10**9), "not 2 1000000000"),
    ],
)
def test_sizes_that_a_language_does_not_have(name, sizes, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        LANGUAGES[name](sizes=sizes).check()


@EVERY
def test_a_length_below_the_smallest_size_is_refused(name):
    """Every other length has a string, and its first three sizes are named."""
    language = LANGUAGES[name]()
    sizes = [size for size in range(1, 30) if language.has(size)]
    for length in range(1, 13):
        if length < sizes[0]:
            with pytest.raises(ValueError) as error:
                language.sample_of_length(length, Random(1))
            said = f"{name} has no string of size {length} or smaller; its sizes are "
            assert str(error.value) == said + "{}, {}, {}, ...".format(*sizes)
        else:
            sample = language.sample_of_length(length, Random(1))
            assert set(sample.targets) != {UNASKED}


def test_symbols_of_a_text():
    parity, stack = LANGUAGES["parity"](), LANGUAGES["stack_manipulation"]()
    assert parity.parse("0110") == parity.parse("0 1 1 0") == ["0", "1", "1", "0"]
    assert stack.with_questions(stack.parse("a pop")) == ["a", "pop", "?", "?", "?"]
    with pytest.raises(ValueError, match="parity has no symbol '2'; known: 0 1"):
        parity.parse("012")
    with pytest.raises(ValueError, match="did you mean push_a"):
        stack.parse("a pusha")
    with pytest.raises(ValueError, match="empty string"):
        parity.parse("")
    with pytest.raises(ValueError, match="reverse_string has no string with"):
        LANGUAGES["reverse_string"]().run(["a", "?", "?"])


def test_small_is_the_same_language_with_shorter_strings():
    for kind in LANGUAGES.values():
        small = kind().small()
        small.check()
        assert type(small) is kind and small.sizes[1] < kind().sizes[1]
    assert replace(Shuffle2(legacy=True)).small().legacy


def test_flat_storage_keeps_every_string():
    language, random = LANGUAGES["bucket_sort"](), Random(1)
    samples = [language.sample(random) for _ in range(20)]
    assert Sequences.of(samples).samples() == samples
