"""Hints and `--help` name commands in the way in which the user started this process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forks import NOBODY_READS, Program

from fastweights import launch
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.host.commands import command_argv, run_command, typed_command
from fastweights.launch import (
    atari,
    code_execution,
    evaluate,
    formal_language,
    list_ops,
    replay,
    report,
    suite,
    t_maze,
    watch,
    wikitext103,
)
from fastweights.tasks import ListOps

ROOT = Path(__file__).parents[2]
# How the process was started, and how its user starts `evaluate`.
STARTED = {
    "launch/atari.py": "python launch/evaluate.py",
    str(ROOT / "launch" / "atari.py"): f"python {ROOT / 'launch' / 'evaluate.py'}",
    "/usr/bin/fastweights": "fastweights evaluate",
    str(ROOT / "fastweights" / "__main__.py"): "python -m fastweights evaluate",
    "/usr/bin/pytest": "python launch/evaluate.py",
}


@pytest.mark.parametrize(("started", "wanted"), STARTED.items())
def test_a_command_is_named_as_the_user_started_this_process(started, wanted, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [started])
    assert typed_command("evaluate") == wanted


def test_a_named_commands_arguments_are_quoted_for_a_shell(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fastweights"])
    typed = typed_command("evaluate", Path("my runs/a"), "--env", "my_games:Maze-v0")
    assert typed == "fastweights evaluate 'my runs/a' --env my_games:Maze-v0"


def test_an_interrupt_while_a_command_is_imported_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.setattr(launch, "__path__", [str(tmp_path)])
    with pytest.raises(SystemExit, match="130"):
        run_command("interrupted")
    assert capsys.readouterr().err == "error: interrupted\n"


ASCII_ONLY = """
import io, sys
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, "ascii")
from fastweights.host import run_command
sys.exit(run_command("list_ops", sys.argv[1:]))
"""


def test_an_output_that_lacks_a_character_gets_a_question_mark(tmp_path):
    small = ("--preset", "small", "--train-size", 20, "--valid-size", 4, "--test-size", 4)
    ended = Program(ASCII_ONLY, *small, "--savedir", tmp_path, "--statistics").end()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "?" in ended.stdout and ended.stdout.isascii()


def test_a_command_whose_output_nobody_reads_ends_quietly(tmp_path):
    sample = ROOT / "tests" / "samples" / "agent"
    export = ("export", sample, "--format", "safetensors", "--out", tmp_path / "a")
    ended = Program(NOBODY_READS, *export).end()
    assert (ended.returncode, ended.stderr) == (141, "")
    assert (tmp_path / "a" / "model.safetensors").exists()


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_help_that_nobody_reads_ends_quietly(flag):
    ended = Program(NOBODY_READS, "atari", flag).end()
    assert (ended.returncode, ended.stderr) == (141, "")


def test_the_list_of_commands_that_nobody_reads_ends_quietly():
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes) as closed:
        ended = subprocess.run(
            [sys.executable, "-m", "fastweights"], cwd=ROOT, stdout=closed, stderr=subprocess.PIPE
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_command_whose_standard_output_is_closed(tmp_path):
    program = """
import sys
from fastweights.host import run_command
sys.stdout = None  # as Python leaves it if descriptor 1 is closed
sys.exit(run_command(sys.argv[1], sys.argv[2:]))
"""
    sample = ROOT / "tests" / "samples" / "agent"
    export = ("export", sample, "--format", "safetensors", "--out", tmp_path / "a")
    ended = Program(program, *export).end()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "a" / "model.safetensors").exists()


def test_a_command_started_in_the_folder_of_the_commands(monkeypatch):
    monkeypatch.chdir(ROOT / "launch")
    monkeypatch.setattr(sys, "argv", ["atari.py"])
    assert typed_command("evaluate") == "python evaluate.py"


def test_another_programs_script_in_a_folder_named_launch_is_no_command(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "launch" / "mine.py")])
    monkeypatch.chdir(ROOT)
    assert typed_command("evaluate") == "python launch/evaluate.py"
    (tmp_path / "launch").mkdir()
    monkeypatch.chdir(tmp_path)
    assert typed_command("evaluate") == "fastweights evaluate"


def test_a_command_of_the_checkout_that_is_started_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = os.path.relpath(ROOT / "launch" / "atari.py", tmp_path)
    monkeypatch.setattr(sys, "argv", [script])
    assert typed_command("evaluate") == f"python {Path(script).with_name('evaluate.py')}"


def test_a_program_of_the_user_gets_hints_that_work_in_its_folder(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fastweights.experiments import run_agent\n"
        "from fastweights.agents import LearnerConfig\n"
        "from fastweights.training import RunOptions\n"
        "learner = LearnerConfig(total_steps=20)\n"
        "options = RunOptions(env='Catch', core='feedforward', num_threads=1, num_envs=4,\n"
        "    batch_size=4, unroll_length=5, learner=learner, xpid='maze')\n"
        "raise SystemExit(run_agent(options))\n"
    )
    done = subprocess.run(
        [sys.executable, "mine.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "to evaluate:\n  fastweights evaluate runs/maze\n" in done.stdout


def test_a_folder_that_was_removed_is_no_checkout(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "argv", ["mine"])
    assert typed_command("evaluate") == "fastweights evaluate"


@pytest.mark.parametrize(
    "command",
    [
        *(atari, code_execution, evaluate, formal_language, list_ops),
        *(replay, report, suite, t_maze, watch, wikitext103),
    ],
)
def test_help_names_the_command_in_both_ways_of_starting_it(command, monkeypatch, capsys):
    name = command.__name__.rpartition(".")[2]
    monkeypatch.setenv("COLUMNS", "200")
    said = {}
    for started in ("launch/any.py", "fastweights"):
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, "argv", [started])
        with pytest.raises(SystemExit) as stopped:
            command.main(["--help"])
        assert stopped.value.code == 0
        said[started] = capsys.readouterr().out
    assert f"usage: python launch/{name}.py" in said["launch/any.py"]
    assert f"usage: fastweights {name}" in said["fastweights"]
    assert "launch/" not in said["fastweights"]


def test_the_commands_of_a_list_say_what_they_do():
    done = subprocess.run(
        [sys.executable, "-m", "fastweights"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:2] == "  "]
    assert len(commands) >= 8
    for name, purpose in commands:
        assert purpose[0].isupper() and purpose.endswith(".") and "`" not in purpose, name


def test_a_grids_run_is_a_command_that_starts(tmp_path):
    run = SequenceRun(sequence_preset("small", "lstm", ListOps()))
    assert run.start()[: len(command_argv("list_ops"))] == command_argv("list_ops")
    done = subprocess.run(
        [*command_argv("list_ops"), "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "list_ops.py" in done.stdout, done.stderr
