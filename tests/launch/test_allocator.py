"""Freed memory is kept: a later update finds the pages of an earlier one still there."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from launch.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
network = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3))
pictures = torch.randn(64, 4, 84, 84)

def update():
    network(pictures).square().mean().backward()

for _ in range(4):  # until the heap has found its size
    update()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    update()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_large_blocks_are_not_mapped_afresh():
    assert page_faults("keep") < page_faults("as usual") / 10
