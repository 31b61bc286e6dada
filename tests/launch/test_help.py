"""`--help` fits two screens; `--help-all` has the names, values and defaults of all options."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from fastweights.cores import CORES
from fastweights.envs.protocols import PROTOCOLS
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
    wikitext103,
)
from fastweights.launch import watch as watch_command
from fastweights.launch.cli.atari_options import CommandLine
from fastweights.launch.cli.parser import _REGISTRY
from fastweights.training.presets import PRESETS, preset

ROOT = Path(__file__).parents[2]
COMMANDS = [
    *(atari, code_execution, evaluate, formal_language, list_ops, replay, report, suite, t_maze),
    wikitext103,
    watch_command,
]
SCREENS = 2 * 45  # lines of 80 columns
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def printed(command, capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        command.main(list(words))
    assert not exit_.value.code
    return capsys.readouterr().out


def options(text: str) -> list[str]:
    """Return the flags that begin an entry or a list of names, without those in descriptions."""
    lines = re.findall(r"^  (--.*)", text, re.MULTILINE)
    return [flag for line in lines for flag in FLAG.findall(re.split(r" {3,}(?!-)", line)[0])]


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["launch/atari.py"])


@pytest.mark.parametrize("command", [atari, code_execution, list_ops, wikitext103])
@pytest.mark.parametrize("core", CORES)
def test_help_fits_two_screens(command, core, capsys):
    text = printed(command, capsys, "--core", core, "--help")
    assert len(text.splitlines()) <= SCREENS
    assert max(map(len, text.splitlines())) <= 100


def test_help_begins_with_what_people_set(capsys):
    first = options(printed(atari, capsys, "--help"))[:5]
    assert first == ["--env", "--core", "--preset", "--total-steps", "--seed"]


def test_help_describes_the_chosen_core_s_own_options_with_their_values(capsys):
    text = printed(atari, capsys, "--core", "lstm", "--help")
    assert re.search(r"--core-forget-bias FLOAT\n +Number added to the forget gates", text)
    assert re.search(r"--core-width INT +Number of units. \[256\]", text)
    assert "residual blocks" not in text


@pytest.mark.parametrize("screen", ["--help", "--help-all"])
def test_each_screen_names_every_option_that_tyro_takes(screen, capsys):
    named = options(printed(atari, capsys, screen))
    default = CommandLine(run=preset("paper", "rdn"))
    with pytest.raises(SystemExit):
        tyro.cli(CommandLine, args=["--help"], default=default, registry=_REGISTRY)
    lines = re.findall(r"^\W+ (--[a-z][\w-]*)", capsys.readouterr().out, re.MULTILINE)
    assert len(lines) > 50
    assert {flag.replace("--no-", "--") for flag in named} == set(lines)


@pytest.mark.parametrize("screen", ["--help", "--help-all"])
def test_each_option_is_there_once(screen, capsys):
    named = options(printed(atari, capsys, screen))
    assert len(named) == len(set(named))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("screen", ["--help", "--help-all"])
def test_no_default_is_none(command, screen, capsys):
    text = printed(command, capsys, screen)
    assert (
        "None]" not in text
        and "{None}" not in text
        and "tyro" not in text
        and "==SUPPRESS==" not in text
    )


def test_options_that_several_flags_take_are_not_described_as_one_s(capsys):
    text = printed(formal_language, capsys, "--help-all")
    assert re.findall(r"(--\S+) .*\n? +--table: ", text) == ["--further"]
    assert "a language model" not in text  # of --seed, which such a model has, too


def test_allowed_values_are_listed(capsys):
    text = printed(atari, capsys, "--help")
    for known in (PROTOCOLS, PRESETS, CORES, ("lockstep", "asynchronous"), ("bfloat16", "float32")):
        assert all(name in text for name in known)


def test_a_preset_s_options_are_the_defaults_that_are_shown(capsys):
    text = printed(atari, capsys, "--preset", "maze", "--help")
    assert "--unroll-length INT [44]* " in text
    assert "--core-width INT      Number of units. [32]*\n" in text


def test_what_a_preset_changes_has_a_star(capsys):
    text = printed(atari, capsys, "--preset", "quick", "--help")
    assert "(*: differs from the preset paper)" in text
    starred = set(re.findall(r"(--[\w-]+)[^-]*?\*(?=\s)", text))
    assert {"--stem", "--epochs", "--no-normalize-advantages", "--total-steps"} <= starred
    assert not starred & {"--alpha", "--discounting", "--no-tune-memory", "--env", "--core-width"}
    assert "*" not in printed(atari, capsys, "--help")


def test_a_reader_that_closes_early_gets_no_traceback():
    command = f"{sys.executable} launch/atari.py --help-all | head -c 10"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "usage: pyt" and not done.stderr
