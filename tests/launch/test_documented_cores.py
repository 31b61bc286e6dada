"""The cores that docs/cores.md makes: its code, taken from the page, in a real run."""

import re
from pathlib import Path

import pytest
import torch
from small_runs import logged, train

import cores
from cores import CORES, build_core, unroll_by_steps

PAGE = Path(__file__).parents[2] / "docs" / "cores.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SOURCES_AND_LINES = zip(BLOCKS[::2], BLOCKS[1::2], strict=True)
EXAMPLES = dict(zip(("trace", "plain_delta_net"), SOURCES_AND_LINES, strict=True))


@pytest.fixture
def documented(request, monkeypatch) -> str:
    """The name of a core that stands in `CORES` as the page says."""
    source, line = EXAMPLES[request.param]
    names = vars(cores).copy()
    exec(compile(source, PAGE, "exec"), names)
    ((name, kind),) = eval(f"{{{line}}}", names).items()
    monkeypatch.setitem(CORES, name, kind)
    return name


every_example = pytest.mark.parametrize("documented", EXAMPLES, indirect=True)


@every_example
def test_it_does_what_its_step_does(documented):
    core = build_core(documented, 5, width=8)
    x, is_first = torch.randn(6, 3, 5), torch.zeros(6, 3, dtype=torch.bool)
    is_first[2, 1] = True
    y, state = core.unroll(x, core.initial_state(3), is_first)
    by_steps, _ = unroll_by_steps(core, x, core.initial_state(3), is_first)
    torch.testing.assert_close(y, by_steps)
    alone, _ = core.unroll(x[2:, 1:2], core.initial_state(1), is_first[2:, :1])
    torch.testing.assert_close(y[2:, 1:2], alone)
    assert state and core.inspect(x[0], core.initial_state(3))


@every_example
def test_it_trains_from_the_command_line(documented, tmp_path):
    maze = ("--env", "TMaze", "--core", documented, "--core-width", 16, "--total-steps", 40)
    assert train(tmp_path, "run", *maze) == 0
    assert logged(tmp_path / "run")["step"] == [20, 40]
