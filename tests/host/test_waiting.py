"""Commands let OpenMP's threads sleep while they wait; importing the library does not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastweights.host.waiting import SETTINGS, WAITING_VARIABLES

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path for path in sorted((ROOT / "launch").glob("*.py")) if "__main__" in path.read_text()
]
UNTOUCHED = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
# Prints what a script has set when it, or a module that it imports, first imports torch.
AT_TORCH = f"""
import os, runpy, sys
from pathlib import Path

class Found(Exception):
    pass

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            names = [name for name in {WAITING_VARIABLES} if name in os.environ]
            raise Found({{name: os.environ[name] for name in names}})

sys.meta_path.insert(0, Finder)
given, elsewhere = dict(os.environ), sys.path[1:]
for script in sys.argv[1:]:
    sys.path[:] = [str(Path(script).parent), *elsewhere]
    try:
        runpy.run_path(script, run_name="__main__")
    except Found as found:
        print(found)
    os.environ.clear()
    os.environ.update(given)
"""
LIBGOMP = pytest.mark.skipif(
    "libgomp" not in (Path("/proc/self/maps").read_text() if sys.platform == "linux" else ""),
    reason="needs torch with GCC's OpenMP",
)


def run(*command: object, **variables: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        env=UNTOUCHED | {"PYTHONPATH": str(ROOT)} | variables,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [({}, SETTINGS), *(({name: "1"}, {name: "1"}) for name in WAITING_VARIABLES)],
    ids=["nothing", *WAITING_VARIABLES],
)
def test_every_script_decides_before_torch_is_loaded_unless_its_user_has(chosen, wanted):
    done = run("-c", AT_TORCH, *SCRIPTS, **chosen)
    assert len(SCRIPTS) >= 8
    assert done.stdout.splitlines() == [str(wanted)] * len(SCRIPTS)


@LIBGOMP
def test_the_openmp_that_torch_brings_reads_it():
    """OMP_DISPLAY_ENV prints the value in use; without our setting it would be 300000."""
    done = run(ROOT / "launch/atari.py", "--list-cores", OMP_DISPLAY_ENV="VERBOSE")
    spins = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    assert spins == [SETTINGS.get("GOMP_SPINCOUNT", "0")]


@LIBGOMP
def test_the_page_s_advice_for_programs_of_one_s_own_works():
    page = (ROOT / "docs/shared_machines.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "GOMP_SPINCOUNT = '0'" in run("-c", example, OMP_DISPLAY_ENV="VERBOSE").stderr


def test_importing_the_library_sets_nothing():
    rooms = "agents.learner", "cores", "envs", "kernels", "tasks", "launch.atari", "host.waiting"
    modules = ", ".join(f"fastweights.{room}" for room in rooms)
    done = run("-c", f"import os, {modules}\nprint(*os.environ, sep='\\n')")
    assert set(WAITING_VARIABLES).isdisjoint(done.stdout.splitlines())
