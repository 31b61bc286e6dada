"""Reading a text of WikiText-103's size with realistic word frequencies: time and memory.

python -m pytest -m faults -s tests/tasks/language_model/test_full_size.py
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fastweights.tasks.language_model.published import PUBLISHED

EXPECTED = PUBLISHED["WikiText-103"]
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}  # half of them are blank
TYPES = EXPECTED.types - 1  # without `<eos>`
READ = """
import json, resource, sys, time
from pathlib import Path
from fastweights.tasks.language_model.corpus import CutOptions, open_corpus
from fastweights.tasks.language_model.source import find_source
begun = time.monotonic()
found = open_corpus(find_source(Path(sys.argv[1])), CutOptions(), Path(sys.argv[2]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
said = {"seconds": time.monotonic() - begun, "cpu": time.process_time(), "peak": peak}
said |= {"counts": found.counts, "name": found.published_name}
said["first"] = found.vocabulary.types[:3]
print(json.dumps(said))
"""


def zipf(count: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield numbers of words, each word once and then as frequent as its rank says."""
    share = 1 / (np.arange(TYPES) + 2.7)
    cumulated = np.cumsum(share / share.sum())
    every = generator.permutation(TYPES) if count > TYPES else np.zeros(0, np.int64)
    yield every
    for start in range(len(every), count, 2**20):
        drawn = generator.random(min(2**20, count - start))
        yield np.minimum(np.searchsorted(cumulated, drawn), TYPES - 1)


def write(path: Path, split: str, generator: np.random.Generator) -> None:
    """Write as many words and lines as the published split, with a blank line after each line."""
    words = np.array(["<unk>", *(f"word{n}" for n in range(TYPES - 1))], object)
    wanted = getattr(EXPECTED, split) - LINES[split]
    full = LINES[split] // 2
    ends = np.linspace(0, wanted, full + 1).round().astype(np.int64)[1:]
    written = 0
    with path.open("w") as file:
        for numbers in zipf(wanted, generator):
            text = words[numbers]
            inside = ends[np.searchsorted(ends, written, "right") :]
            inside = inside[inside <= written + len(numbers)] - written
            for piece in np.split(text, inside)[:-1]:
                file.write(f" {' '.join(piece)} \n \n")
            rest = text[inside[-1] if len(inside) else 0 :]
            file.write("".join(f"{word} " for word in rest))
            written += len(numbers)
        file.write("\n" * (LINES[split] - 2 * full))


@pytest.mark.faults
def test_a_text_of_full_size_takes_minutes_and_less_than_a_gigabyte(tmp_path):
    folder, generator = tmp_path / "wikitext-103", np.random.default_rng(1)
    folder.mkdir()
    for split in LINES:
        write(folder / f"wiki.{split}.tokens", split, generator)
    found = []
    for _ in range(2):  # made at first, then found in the cache
        begun = time.monotonic()
        command = [sys.executable, "-c", READ, str(folder), str(tmp_path / "cache")]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(json.loads(said))
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{size:,} bytes in {time.monotonic() - begun:.0f} s: {found[-1]}")
    for each in found:
        assert each["name"] == "WikiText-103"
        assert each["counts"] == list(EXPECTED)
        assert each["first"] == ["<eos>", "<unk>", "word0"]
        assert each["peak"] < 1e9
    assert found[1]["cpu"] < found[0]["cpu"] / 5
