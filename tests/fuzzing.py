"""Tools for searches of bad input: values to try, a sandbox, and the check of an error.

Long searches have the marker `faults`.
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastweights.agents.learner import Learner
from fastweights.agents.network import Network
from fastweights.host.errors import one_line_errors, user_input
from fastweights.records.metrics import Metrics
from fastweights.training.options import RunOptions
from fastweights.training.saved_agent import pack

OPTIONS = RunOptions(env="Catch", core="lstm", core_width=8)
SHAPE, ACTIONS = (50,), 3


def searched(test: Callable, short: int, long: int, *inputs: st.SearchStrategy) -> list[Callable]:
    """Return a test with `short` examples, and one with `long` examples marked `faults`.

    The examples are the same each time; hypothesis stores none.
    """
    found = [
        settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(given(*inputs)(test))
        for examples in (short, long)
    ]
    return [found[0], pytest.mark.faults(found[1])]


numbers = st.one_of(
    st.integers(-2, 20),
    st.sampled_from([2**31, -(2**63), 2**63, 10**30, 10**400]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -1.0, 0.5, float("nan"), float("inf")]),
)
texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["lstm", "rdn", "Catch", "full", "../../x", "/x", "a\nb", "a\0b", "", "1", "²"]
    ),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tensors = st.sampled_from(
    [torch.zeros(()), torch.ones(3), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(0)]
)


class Canary:
    """An object whose unpickling would create a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@contextmanager
def sandbox() -> Iterator[Path]:
    """Yield a run folder; fail if any file, such as a canary's, appears beside it."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "runs" / "run"
        run.mkdir(parents=True)
        yield run
        beside = {path.name for path in (*Path(place).iterdir(), *run.parent.iterdir())}
        assert beside <= {"runs", "run", "latest"}, beside


def canary_of(run: Path) -> Canary:
    return Canary(run.parent / "canary")


def command(action: Callable[[], Any]) -> int:
    """Return the exit code of a command that does `action`; check that its error is one line."""

    @one_line_errors
    def main() -> None:
        with user_input():
            action()

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            main()
    except SystemExit as exit_:
        assert exit_.code == 2
        line = said.getvalue().splitlines()[-1]
        assert line.startswith("error: ") and len(line) > len("error: ")
        return 2
    return 0


def changed(content: Any, path: list, value: Any) -> Any:
    """Return `content` with the value at `path` replaced, or removed if `value` is GONE."""
    content = deepcopy(content)
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


GONE = object()
values = st.one_of(st.just(GONE), plain)


def paths(content: Any, depth: int = 3) -> list[list]:
    """Return the paths to all values in nested dicts and lists, up to `depth` names long."""
    if not depth or not isinstance(content, dict | list):
        return []
    names = list(content) if isinstance(content, dict) else range(min(len(content), 2))
    return [way for n in names for way in ([n], *([n, *on] for on in paths(content[n], depth - 1)))]


@cache
def payload() -> dict[str, Any]:
    learner = Learner(Network(OPTIONS.network(SHAPE, ACTIONS)), OPTIONS.learner)
    for weight in learner.network.parameters():
        weight.grad = torch.ones_like(weight)
    learner.optimizer.step()
    metrics = Metrics(lambda row: None)
    metrics.add_game(1.0, 2, 3)
    stats = {"metrics": metrics.state_dict()}
    return pack(OPTIONS, learner, stats) | {"step": 40, "score": 1.0}
