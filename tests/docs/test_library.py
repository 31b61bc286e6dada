"""The examples of docs/library.md, run in order, and that of docs/kernels.md."""

import re
from pathlib import Path

import pytest
import torch
from torch.nn.functional import one_hot

from fastweights.launch import formal_language, wikitext103
from tests.small_texts import TEXT as WORDS
from tests.small_texts import plain

RUNS = ("--preset", "small", "--core", "lstm", "--core-width", "16", "--num-threads", "1")
PARITY = [*RUNS, "--task", "parity", "--train-size", "64", "--epochs", "1", "--sizes", "2", "20"]
TEXT = [*RUNS, "--vocabulary", "bytes", "--columns", "4", "--span", "8", "--updates", "2"]
TEXT += ["--warm-up", "1", "--stride", "4", "--data", "texts"]
DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "library.md"


def test_the_examples_of_the_library_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them trains an agent into `runs`
    assert formal_language.main([*PARITY, "--xpid", "parity"]) == 0
    words = {split: content * 6 for split, content in WORDS.items()}
    plain(Path("texts"), "wiki.{}.tokens", words)
    assert wikitext103.main([*TEXT, "--xpid", "text"]) == 0
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks[0].splitlines()) <= 15  # a core in a model, with a hand-written training loop
    names: dict = {}
    for block in blocks:
        exec(compile(block, PAGE, "exec"), names)
    symbols = torch.randint(8, (12, 256))
    y, _ = names["core"](one_hot(symbols, 8).float())
    right = names["head"](y).argmax(-1) == symbols[0]
    assert right.float().mean() > 0.9  # of eight symbols, at every step
    (played,) = names["row"].episodes
    assert played.agent_steps >= 11 and names["row"].is_first.all()
    assert set(names["saved_answers"]) <= {"T", "F"}
    assert names["next_token"].exp().sum().item() == pytest.approx(1, abs=1e-4)
    assert names["agent"].step >= 20_000 and names["run"].resolve().is_relative_to(tmp_path)


def test_the_example_of_the_kernels_page():
    page = DOCS / "kernels.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(block, page, "exec"), names)
    assert names["y"].shape == (50, 8, 4, 16)
