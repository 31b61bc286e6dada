"""Code execution: Python runs the same programs and agrees on what they print."""

from random import Random

import pytest

from fastweights.tasks import CodeExecution, Sample

PAPERS_EXAMPLE = "x = 3 ; y = 7 ; x ++ ; if y < 6 : print x ; print x ;"


def written(task: CodeExecution, sample: Sample) -> tuple[list[str], list[str]]:
    words = [task.words[token] for token in sample.tokens]
    return words, [task.answers[target] for target in sample.targets]


def statements(words: list[str]) -> list[list[str]]:
    """Split a program after every semicolon."""
    cut: list[list[str]] = [[]]
    for word in words:
        cut[-1].append(word)
        if word == ";":
            cut.append([])
    assert cut.pop() == []
    return cut


def translated(statement: list[str], position: int) -> str:
    """Return a statement as a line of Python; `position` is the position of its semicolon."""
    if statement[0] == "if":
        _, name, sign, constant, colon, *then = statement
        assert colon == ":"
        return f"if {name} {sign} {constant}: {translated(then, position)}"
    if statement[0] == "print":
        return f"printed[{position}] = {statement[1]}"
    name, symbol, *rest = statement
    return f"{name} = {rest[0]}" if symbol == "=" else f"{name} {symbol[0]}= 1"


def run_by_python(words: list[str]) -> dict[int, int]:
    """Run a program in Python and return what it prints, by position."""
    lines, position = [], -1
    for statement in statements(words):
        position += len(statement)
        lines.append(translated(statement, position))
    names = {"printed": {}}
    exec("\n".join(lines), names)
    return names["printed"]


def answers_of_python(words: list[str]) -> list[str]:
    printed = run_by_python(words)
    return [str(printed.get(position, "_")) for position in range(len(words))]


@pytest.mark.parametrize(
    ("task", "programs"),
    [
        (CodeExecution(variables=3), 100),
        (CodeExecution(variables=5), 100),
        (CodeExecution(variables=3, statements=25), 400),
        (CodeExecution(variables=5, statements=25), 350),
        (CodeExecution(variables=2, statements=2), 50),
    ],
)
def test_python_agrees_on_every_label(task, programs):
    random = Random(7)
    for _ in range(programs):
        words, answers = written(task, task.sample(random))
        assert answers == answers_of_python(words)


def test_the_evaluator_itself_on_the_papers_example():
    words = PAPERS_EXAMPLE.split()
    assert answers_of_python(words) == ["_"] * (len(words) - 1) + ["4"]


def test_vocabularies_are_the_published_ones():
    assert len(CodeExecution(variables=3).words) == 22
    assert len(CodeExecution(variables=5).words) == 24
    assert len(CodeExecution().answers) == 26


def test_first_assigns_last_prints_and_the_others_come_equally_often():
    task, random, kinds = CodeExecution(variables=5), Random(3), []
    for _ in range(100):
        first, *middle, last = statements(written(task, task.sample(random))[0])
        assert len(middle) == 98
        assert first[1] == "=" and last[0] == "print"
        kinds += [one[0] if one[0] in ("if", "print") else one[1][0] for one in middle]
    shares = [kinds.count(kind) / len(kinds) for kind in ("=", "print", "if")]
    counting = (kinds.count("+") + kinds.count("-")) / len(kinds)
    assert [*shares, counting] == pytest.approx([0.25] * 4, abs=0.02)


def test_no_statement_takes_a_value_out_of_range():
    """At the edges, only assignments and steps back inside are drawn."""
    task, random = CodeExecution(variables=1), Random(1)
    for value, inside in ((-8, {-7, *range(10)}), (16, {15, *range(10)})):
        drawn = [task._statement(random, {"x": value}) for _ in range(300)]
        changes = {statement.change for statement in drawn} - {None}
        assert changes == {("x", new) for new in inside}


def test_the_mean_length_is_the_expected_one():
    """The first statement has 4 tokens, the last 3, and the others (4 + 3 + 3 + 5 + 10/3) / 4."""
    task, random = CodeExecution(variables=3), Random(2)
    lengths = [len(task.sample(random).tokens) for _ in range(200)]
    assert sum(lengths) / 200 == pytest.approx(456.2, abs=6)


def test_the_legacy_option_changes_a_tenth_of_the_printed_values():
    """The option ignores a true conditional assignment to a variable that has a value."""
    task, random = CodeExecution(legacy_conditional_assign=True), Random(5)
    printed = differing = programs = 0
    for _ in range(150):
        words, answers = written(task, task.sample(random))
        try:
            correct = answers_of_python(words)
        except NameError:  # it assigned under a condition that is false in Python
            programs += 1
            continue
        printed += sum(answer != "_" for answer in answers)
        differing += sum(
            one not in ("_", other) for one, other in zip(answers, correct, strict=True)
        )
        programs += answers != correct
    assert differing / printed == pytest.approx(0.1, abs=0.03)
    assert programs / 150 == pytest.approx(0.8, abs=0.1)


def test_statistics_are_those_of_the_samples():
    task = CodeExecution(variables=3, statements=3)
    program = "x = 3 ; print x ; print x ;"
    tokens = [task.words.index(word) for word in program.split()]
    three = task.answers.index("3")
    sample = Sample(tuple(tokens), (0, 0, 0, 0, 0, 0, three, 0, 0, three))
    found = {statistic.name: statistic.ours for statistic in task.statistics([sample])}
    assert list(found.values())[:3] == ["10 / 10.0 / 10", "2 / 2.0 / 2", "100.0 %"]
    assert [name for name in found if name.startswith("value")] == [
        f"value {value}" for value in range(-8, 17)
    ]
    assert found["value 3"] == "█" * 12 + " 100.0 %" and found["value 2"] == "  0.0 %"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"variables": 0}, r"--variables must lie in \[1, 5\], not 0"),
        ({"variables": 6}, "not 6"),
        ({"statements": 1}, "--statements must be at least 2"),
    ],
)
def test_impossible_settings(settings, says):
    with pytest.raises(ValueError, match=says) as error:
        CodeExecution(**settings).check()
    assert "\n" not in str(error.value)
