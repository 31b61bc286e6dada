"""Scripts import the code beside them and find games in the current folder."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path for path in sorted((ROOT / "launch").glob("*.py")) if "__main__" in path.read_text()
]
RAY = ["--engine", "ray", "--num-actors", "1"]
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
# Reports from where a script would import our package.
FIRST_IMPORTS = """
import runpy, sys
from importlib.machinery import PathFinder
from pathlib import Path

class Found(Exception):
    pass

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "fastweights":
            raise Found(PathFinder.find_spec(name).origin)

sys.meta_path.insert(0, Finder)
elsewhere = sys.path[1:]
for script in sys.argv[1:]:
    sys.path[:] = [str(Path(script).parent), *elsewhere]
    try:
        runpy.run_path(script, run_name="__main__")
    except Found as found:
        print(found)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Return an environment in which another checkout is installed."""
    other = tmp_path_factory.mktemp("other")
    (other / "fastweights").mkdir()
    (other / "fastweights" / "__init__.py").write_text("raise SystemExit('the other one')")
    return os.environ | {"PYTHONPATH": str(other)}


def run(*command: object, **where: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300, **where
    )


def test_every_script_takes_the_code_beside_it(environment, tmp_path):
    done = run("-c", FIRST_IMPORTS, *SCRIPTS, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    origins = list(map(Path, done.stdout.splitlines()))
    assert len(origins) == len(SCRIPTS) >= 8
    assert {origin.parents[1] for origin in origins} == {ROOT}


def test_from_the_shell(environment, tmp_path):
    link = tmp_path / "atari"
    link.symlink_to(ROOT / "launch" / "atari.py")
    done = run(link, "--list-envs", env=environment, cwd=tmp_path)
    assert done.returncode == 0 and "Qbert" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "engine", [[], pytest.param(RAY, marks=[NEEDS_RAY, pytest.mark.faults])], ids=["local", "ray"]
)
def test_a_game_of_ones_own_lies_in_the_current_folder(engine, environment, tmp_path):
    (tmp_path / "report.py").write_text(  # a command has this name, too
        "import gymnasium\ngymnasium.register('MyGame-v0', vector_entry_point='envs.catch:Catch')\n"
    )
    (tmp_path / "envs").mkdir()  # the checkout has a folder of this name, too
    (tmp_path / "envs" / "catch.py").write_text("from fastweights.envs.catch import Catch\n")
    (tmp_path / "rich.py").write_text("raise SystemExit('what lies there took a place')\n")
    size = "--num-envs 2 --batch-size 2 --unroll-length 4 --total-steps 8 --core-width 8"
    game = "--env report:MyGame-v0 --core lstm --num-threads 1 --disable-checkpoint --xpid run"
    command = (ROOT / "launch/atari.py", *size.split(), *game.split(), *engine)
    done = run(*command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "run" / "logs.csv").exists()
