"""Commands are named as the user started this process, and started with the code that runs here."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastweights.host import commands

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("started", "named"),
    [
        ("launch/atari.py", "python launch/evaluate.py"),
        (f"{ROOT}/launch/atari.py", f"python {ROOT}/launch/evaluate.py"),
        ("/usr/bin/fastweights", "fastweights evaluate"),
        (f"{ROOT}/fastweights/__main__.py", "python -m fastweights evaluate"),
        ("/somebody/else/launch/atari.py", "python launch/evaluate.py"),
        ("-c", "python launch/evaluate.py"),
    ],
)
def test_a_hint_names_a_command_as_this_process_was_started(started, named, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [started, "--core", "rdn"])
    assert commands.typed("evaluate") == named


def test_an_installed_package_has_no_scripts(monkeypatch, tmp_path):
    monkeypatch.setattr(commands, "_SCRIPTS", tmp_path / "launch")
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert commands.typed("evaluate") == "fastweights evaluate"
    assert commands.process("atari") == [sys.executable, "-P", "-m", "fastweights", "atari"]


def test_a_process_runs_the_code_of_this_checkout(tmp_path):
    words = [*commands.process("atari"), "--list-envs"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Qbert" in done.stdout, done.stderr
    assert Path(words[1]) == ROOT / "launch" / "atari.py"
