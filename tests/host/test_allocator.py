"""The allocator keeps freed memory in large pages, so that later updates reuse it."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, resource, sys
import torch
from fastweights.host.allocator import tune_allocator

if os.fork() == 0:
    assert tune_allocator()
else:  # as usual, and after it
    os.wait()
network = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1))
pictures = torch.randn(64, 4, 84, 84)

def update():
    network(pictures).square().mean().backward()

for _ in range(4):  # until the heap has found its size
    update()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    update()
lines = open("/proc/self/smaps").read().splitlines()
large = sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, large)
"""
CHOICE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


@pytest.fixture(scope="module")
def found() -> dict[str, list[int]]:
    """Return page faults of four updates, and kilobytes in large pages after them."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    numbers = [[*map(int, line.split())] for line in done.stdout.splitlines()]
    return dict(zip(("keep", "as usual"), numbers, strict=True))


def test_large_blocks_are_not_mapped_afresh(found):
    assert found["keep"][0] < found["as usual"][0] / 10


@pytest.mark.skipif(
    not CHOICE.exists() or "[madvise]" not in CHOICE.read_text(),
    reason="needs Linux to give large pages on request only",
)
def test_what_updates_allocate_lies_in_large_pages(found):
    assert found["as usual"][1] == 0
    assert found["keep"][1] > 20_000
