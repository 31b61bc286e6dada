"""Freed memory is kept, in large pages: later updates find those of earlier ones still there."""

import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys
import torch
from launch.allocator import tune_allocator

if sys.argv[1] == "keep":
    assert tune_allocator()
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
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")


@cache
def run(how: str) -> tuple[int, int]:
    """Page faults of four updates, and kilobytes in large pages after them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    faults, large = done.stdout.split()
    return int(faults), int(large)


def test_large_blocks_are_not_mapped_afresh():
    assert run("keep")[0] < run("as usual")[0] / 10


@pytest.mark.skipif(
    not CHOICE.exists() or "[madvise]" not in CHOICE.read_text(),
    reason="the kernel gives large pages to nobody, or to everybody",
)
def test_what_updates_allocate_lies_in_large_pages():
    assert run("as usual")[1] == 0
    assert run("keep")[1] > 20_000
