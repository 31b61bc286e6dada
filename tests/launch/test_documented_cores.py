"""The example cores of docs/cores.md: their code from the page works in a real run."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from small_runs import logged, train

from fastweights.cores import CORES, build_core, import_core
from fastweights.cores.lstm import LSTMConfig
from fastweights.cores.options import is_named_by_size
from fastweights.training.presets import preset
from tests.cores import test_contract, test_inspect

PAGE = Path(__file__).parents[2] / "docs" / "cores.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
EXAMPLES = dict(zip(("my_memory:trace", "my_delta_net:plain"), BLOCKS, strict=True))


@pytest.fixture
def documented(request, own_module) -> str:
    """Import the page's core from a file of its own; return its name."""
    own_module(request.param.partition(":")[0], EXAMPLES[request.param])
    import_core(request.param)
    return request.param


every_example = pytest.mark.parametrize("documented", EXAMPLES, indirect=True)


def clauses() -> Iterator[partial]:
    """Yield every test of the contract with each of its parameters."""
    for name, test in vars(test_contract).items():
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        asked = {mark.args[0]: mark.args[1] for mark in marks}
        if set(asked.pop("name", ())) >= {"lstm", "delta_net", "lt, normalised"}:
            for values in product(*asked.values()):
                yield partial(test, **dict(zip(asked, values, strict=True)))


def _described(clause: partial) -> str:
    return "-".join([clause.func.__name__, *map(str, clause.keywords.values())])


CLAUSES = list(clauses())


@every_example
@pytest.mark.parametrize("clause", CLAUSES, ids=_described)
def test_it_keeps_the_contract(documented, clause):
    clause(documented)


def test_the_contract_has_what_the_page_promises():
    checked = {clause.func for clause in CLAUSES}
    assert checked >= {
        test_contract.test_the_state_carries_all_that_a_later_unroll_needs,
        test_contract.test_a_reset_is_a_fresh_start,
        test_contract.test_nan_before_a_reset_reaches_neither_output_nor_gradient,
        test_contract.test_outputs_and_state_keep_the_inputs_type,
        test_contract.test_gradients_in_double_through_time,
        test_contract.test_truncation_leaves_the_outputs_alone_and_cuts_the_gradient,
    }


@every_example
def test_what_it_shows_is_what_it_computes_with(documented):
    test_inspect.test_the_state_shown_is_the_state_after_the_step(documented, {})
    if "feature_map" in CORES[documented].options():
        for one in ("softmax", "elu_sum"):
            test_inspect.test_keys_and_queries_sum_to_one_and_strengths_lie_between(documented, one)


@every_example
def test_presets_know_its_sizes(documented):
    assert not is_named_by_size(documented)
    has_blocks = "heads" in CORES[documented].options()
    assert preset("maze", documented).core_width == (32 if has_blocks else 64)


@every_example
def test_it_trains_from_the_command_line(documented, tmp_path):
    maze = ("--env", "TMaze", "--core", documented, "--core-width", 16, "--total-steps", 40)
    assert train(tmp_path, "run", *maze) == 0
    assert logged(tmp_path / "run")["step"] == [20, 40]


def test_a_kind_defined_in_a_notebook_has_a_name(tmp_path, monkeypatch, capsys):
    """The cells of a notebook are the module `__main__`, as a script is; a cell may run again."""
    monkeypatch.setitem(CORES, "__main__:in_a_cell", CORES["lstm"])  # before the cell was changed
    own = replace(CORES["lstm"], config=LSTMConfig(width=5))
    monkeypatch.setattr(sys.modules["__main__"], "in_a_cell", own, raising=False)
    import_core("__main__:in_a_cell")
    assert build_core("__main__:in_a_cell", 3).output_size == 5
    assert train(tmp_path, "a", "--core", "__main__:in_a_cell", "--total-steps", 20) == 0
    said = capsys.readouterr().out  # names no command, none of which could import it
    assert "evaluate in this program: open_agent(" in said and "evaluate.py" not in said
