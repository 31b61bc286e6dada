"""The package as users get it: a wheel, and a checkout whose symbolic links were lost."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement  # pytest needs it, too

ROOT = Path(__file__).parents[2]
ROOMS = [path.name for path in (ROOT / "fastweights").iterdir() if path.is_symlink()]
TINY = "--num-envs 2 --batch-size 2 --unroll-length 4 --total-steps 16 --num-threads 1 --xpid run"


def run(*command: object, cwd: Path, **more: str) -> subprocess.CompletedProcess:
    """Run a command in `cwd` without access to this checkout."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | more
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from a copy of the tracked files, so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("fastweights", *ROOMS):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet")
    done = run(*build, "--wheel-dir", copy, copy, cwd=copy)
    assert done.returncode == 0, done.stderr
    return next(copy.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Return the `bin` folder of a new environment with the wheel and another package `agents`.

    The wheel's dependencies come from the current environment.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--quiet")
    done = run(*install, "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "agents").mkdir()
    (packages / "agents" / "__init__.py").write_text("WHOSE = 'somebody else'\n")
    return folder / "bin"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> Path:
    """Return a user's folder with a game in a subfolder named `envs`."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "envs").mkdir()
    (folder / "envs" / "__init__.py").write_text(
        "import gymnasium\n"
        "import agents\n"
        "assert agents.WHOSE == 'somebody else'\n"
        "gymnasium.register('Mine-v0', vector_entry_point='fastweights.envs.catch:Catch')\n"
    )
    return folder


def test_the_wheel_holds_one_name_and_every_file(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"fastweights"}
    kinds = {".py", ".cpp", ".h", ".cu", ".cuh", ".csv", ".html"}
    wanted = {
        f"fastweights/{path.relative_to(ROOT)}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in kinds
    }
    assert wanted <= names


def test_training_and_evaluation_from_another_folder(installed, elsewhere):
    command = installed / "fastweights"
    game = ("--env", "envs:Mine-v0", "--core", "rdn", "--core-width", "16")
    trained = run(command, "atari", *game, *TINY.split(), cwd=elsewhere)
    assert trained.returncode == 0, trained.stderr
    hint = "fastweights evaluate runs/run --env envs:Mine-v0"
    assert hint in trained.stdout
    few = ["--episodes", "2", "--repeats", "1", "--num-threads", "1"]
    evaluated = run(command, *hint.split()[1:], *few, cwd=elsewhere)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "2 games" in evaluated.stdout or "episodes" in evaluated.stdout


def test_a_misspelt_command_gets_the_nearest_name(installed, elsewhere):
    done = run(installed / "fastweights", "evalute", cwd=elsewhere)
    assert done.returncode == 2 and "did you mean evaluate" in done.stderr


def test_missing_packages_of_an_installed_package_are_named(installed, elsewhere):
    program = "from fastweights.host import install_command; print(install_command('onnx'))"
    done = run(installed / "python", "-c", program, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    packages = [Requirement(one) for one in shlex.split(done.stdout)[2:]]
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert packages == [Requirement(one) for one in asked["onnx"]]


def test_a_checkout_whose_links_are_files_works(tmp_path):
    """Where an archive cannot be unpacked with links, each is a file with its target's path."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "fastweights", tmp_path / "fastweights", symlinks=True)
    for room in ROOMS:
        (tmp_path / "fastweights" / room).unlink()
        (tmp_path / "fastweights" / room).write_text(f"../{room}")
    done = run(sys.executable, "launch/atari.py", "--list-envs", cwd=tmp_path)
    assert done.returncode == 0 and "Qbert" in done.stdout, done.stderr
    program = "import fastweights.cores as cores; print(cores.__file__)"
    done = run(sys.executable, "-c", program, cwd=tmp_path)
    assert Path(done.stdout.strip()).parents[1] == tmp_path, done.stderr
