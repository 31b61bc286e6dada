"""The examples of docs/library.md, run in their order."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_examples_of_the_library_page():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(compile(block, PAGE, "exec"), names)
    losses = names["losses"]
    assert sum(losses[:10]) / 10 > 1.5  # eight symbols: chance is 2.08 nats
    assert sum(losses[-10:]) / 10 < 0.4
