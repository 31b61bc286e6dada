"""Importing a benchmark leaves the process as it is."""

from forks import Program

IMPORTS = """
import sys
from importlib import import_module
from pathlib import Path
sys.path.insert(0, "/of/the/user")
names = [path.stem for path in Path("benchmarks").glob("*.py")]
for name in names:
    import_module(f"benchmarks.{name}")
    assert sys.path[0] == "/of/the/user", name
print(len(names))
"""


def test_importing_a_benchmark_leaves_the_search_path():
    done = Program(IMPORTS).end()
    assert done.returncode == 0 and int(done.stdout) > 20, done.stderr
