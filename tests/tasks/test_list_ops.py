"""ListOps: an evaluator that uses Python's syntax agrees on every label."""

from random import Random

import pytest

from fastweights.tasks import UNASKED, ListOps, Sample
from fastweights.tasks.list_ops import shallow_value

PAPERS_EXAMPLE = "[MAX 6 1 [FIRST 2 3 ] 0 [MIN 4 7 1 ] ]"
PYTHON = {"[MIN": "min(", "[MAX": "max(", "[FIRST": "first(", "]": ")"}


def first(*values: int) -> int:
    return values[0]


def words_of(task: ListOps, sample: Sample) -> list[str]:
    return [task.words[token] for token in sample.tokens]


def evaluated(words: list[str]) -> int:
    """Evaluate `[MAX 1 2 ]` as Python's `max(1,2,)`."""
    parts = [
        PYTHON.get(word, word) + ("" if word in PYTHON and word != "]" else ",") for word in words
    ]
    return eval("".join(parts).rstrip(","), {"first": first})


def nesting(words: list[str]) -> int:
    level = deepest = 0
    for word in words:
        level += (word[0] == "[") - (word == "]")
        deepest = max(deepest, level)
    assert level == 0
    return deepest


@pytest.mark.parametrize(("depth", "count"), [(1, 300), (2, 300), (5, 370), (10, 30)])
def test_python_agrees_and_the_depth_is_exact(depth, count):
    task, random = ListOps(depth=depth), Random(depth)
    for _ in range(count):
        sample = task.sample(random)
        words = words_of(task, sample)
        assert task.answers[sample.targets[-1]] == str(evaluated(words))
        assert set(sample.targets[:-1]) == {UNASKED}
        assert nesting(words) == depth


@pytest.mark.parametrize(("depth", "arguments"), [(1, 5), (3, 5), (4, 3), (2, 2)])
def test_the_share_of_trees_of_a_depth(depth, arguments):
    task, random, count = ListOps(depth=depth, max_arguments=arguments), Random(0), 20_000
    grown = (task._grow(random, [], 1) for _ in range(count))
    share = sum(tree is not None and tree[1] == depth for tree in grown) / count
    assert share == pytest.approx(task.share, abs=0.01)


def test_some_of_the_deepest_are_found_and_none_that_would_take_hours():
    ListOps(depth=19).check()
    with pytest.raises(ValueError, match=r"only one in .* nests 19 deep: increase --max"):
        ListOps(depth=19, max_arguments=2).check()


def test_the_evaluator_itself_on_the_papers_example():
    words = PAPERS_EXAMPLE.split()
    assert evaluated(words) == 6 and nesting(words) == 2


def test_vocabularies_are_the_published_ones():
    assert len(ListOps().words) == 14 and len(ListOps().answers) == 10


def test_operations_arguments_and_digits_are_uniform():
    task, random = ListOps(depth=1), Random(0)
    samples = [words_of(task, task.sample(random)) for _ in range(3000)]
    roots = [words[0] for words in samples]
    assert [roots.count(o) / 3000 for o in PYTHON if o != "]"] == pytest.approx(
        [1 / 3] * 3, abs=0.03
    )
    digits = [word for words in samples for word in words[1:-1]]
    assert [digits.count(d) / len(digits) for d in "0123456789"] == pytest.approx(
        [0.1] * 10, abs=0.02
    )
    # All n arguments (2 to 5) are digits with probability 0.75^n, so short lists of digits prevail.
    weights = [0.75**n for n in range(2, 6)]
    lengths = [len(words) - 2 for words in samples]
    shares = [lengths.count(n) / 3000 for n in range(2, 6)]
    assert shares == pytest.approx([w / sum(weights) for w in weights], abs=0.03)


def test_the_lengths_at_depth_10_are_the_papers():
    task, random = ListOps(depth=10), Random(1)
    lengths = [len(task.sample(random).tokens) for _ in range(120)]
    assert sum(lengths) / 120 == pytest.approx(98, abs=12)
    # Ten operations: brackets, one further argument each, two for the innermost.
    assert min(lengths) >= 31


def test_statistics_are_those_of_the_samples():
    task = ListOps(depth=1)
    low = Sample((0, 5, 6, 3), (UNASKED,) * 3 + (1,))
    high = Sample((1, 5, 6, 7, 3), (UNASKED,) * 4 + (3,))
    found = {statistic.name: statistic.ours for statistic in task.statistics([low, low, high])}
    assert list(found.values())[:3] == ["4 / 4.3 / 5", "66.7 %", "100.0 %"]
    assert [name for name in found if name.startswith("value")] == [f"value {d}" for d in range(10)]
    assert found["value 1"] == "█" * 12 + " 66.7 %" and found["value 3"] == "█" * 6 + " 33.3 %"
    assert ListOps(depth=15).statistics([low])[0].paper.startswith("61 / ")


NESTED = "[MIN 5 [MAX [FIRST 9 2 ] 4 ] [MIN 4 [MAX 3 1 ] ] ]"
NOTHING_ELSE = "[MIN [MAX 3 1 ] [MAX 2 2 ] ]"


@pytest.mark.parametrize(
    ("level", "value"),
    [(1, 5), (2, 4), (3, 3), (9, 3)],
)
def test_what_a_reader_has_that_skips_deeper_lists(level, value):
    words = NESTED.split()
    assert shallow_value(words, level) == value


def test_a_reader_who_skips_nothing_is_always_right():
    task, random = ListOps(depth=3), Random(1)
    samples = [task.sample(random) for _ in range(200)]
    found = {one.name: one.ours for one in task.statistics(samples)}
    shares = [
        float(found[f"value without what is below level {n}"].removesuffix(" %")) for n in (1, 2)
    ]
    assert 40 < shares[0] < shares[1] < 100
    for sample in samples:
        assert shallow_value(words_of(task, sample), 3) == int(task.answers[sample.targets[-1]])


def test_nothing_but_deeper_lists_has_no_value():
    assert shallow_value(NOTHING_ELSE.split(), 1) is None


@pytest.mark.parametrize("depth", [0, 20])
def test_impossible_depth(depth):
    with pytest.raises(ValueError, match=rf"--depth must lie in \[1, 19\].*not {depth}"):
        ListOps(depth=depth).check()


def test_impossible_number_of_arguments():
    with pytest.raises(ValueError, match="--max-arguments must lie in"):
        ListOps(max_arguments=1).check()
