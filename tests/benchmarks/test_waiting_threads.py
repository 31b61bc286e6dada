"""Benchmarks that compute as training runs do let waiting threads sleep as these do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastweights.host.waiting import SETTINGS, WAITING_VARIABLES

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
# Those that tune the allocator, as training runs do.
SCRIPTS = [path for path in FILES if "tune_allocator()" in path.read_text()]
# Prints an environment variable when a script, or a module that it imports, first imports torch.
AT_TORCH = """
import os, runpy, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_decides_before_torch_is_loaded(script):
    untouched = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
    command = [sys.executable, "-c", AT_TORCH, str(script)]
    done = subprocess.run(command, env=untouched, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [SETTINGS["GOMP_SPINCOUNT"]]
