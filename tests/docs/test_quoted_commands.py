"""Commands quoted on the pages: scripts and flags exist, and the small commands run."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "docs/*.md", "docs/how_to/*.md", "docs/design/*.md", "docs/results/*/README.md")
PAGES = sorted({path for place in PLACES for path in ROOT.glob(place)})
SCRIPT = re.compile(r"(?:python|torchrun)[^\n`]*?((?:launch|benchmarks|docs)/\w+\.py)([^`#|;&]*)")
SMALL = (
    "python launch/atari.py --list-cores",
    "python launch/atari.py --list-envs",
    "python launch/list_ops.py --statistics",
    "python -m fastweights.kernels",
)


def quoted(page: str) -> set[tuple[str, str]]:
    """Return (script, flag) for every flag of every command on a page; the flag may be empty."""
    joined = re.sub(r"\\\n\s*", " ", page)
    code = re.findall(r"^```\w*\n(.*?)^```", joined, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", joined, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in code for line in block.splitlines()]
    lines += [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", rest)]
    found = set()
    for line in lines:
        for script, words in SCRIPT.findall(line):
            flags = re.findall(r"(?<![\w-])--[a-z][\w-]*", words)
            found |= {(script, flag) for flag in flags or [""]}
    return found


COMMANDS = sorted({one for page in PAGES for one in quoted(page.read_text())})
SCRIPTS = sorted({script for script, _ in COMMANDS})


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    env = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )


# Words that follow a script's name and have flags of their own.
SUBCOMMANDS = {
    "launch/suite.py": ("ablation", "atari", "flicker", "popgym"),
    "launch/wikitext103.py": ("evaluate", "generate", "export"),
}


@cache
def help_of(script: str) -> str:
    told = []
    for words in ((), *((word,) for word in SUBCOMMANDS.get(script, ()))):
        command = sys.executable, str(ROOT / script), *words
        done = run(*command, "--help")
        assert done.returncode == 0, done.stderr
        if "--help-all" in done.stdout:
            done = run(*command, "--help-all")
        told.append(done.stdout)
    return "\n".join(told)


def test_commands_are_found_on_the_pages():
    page = (
        "`python launch/atari.py\n--core x`\n```\npython launch/report.py a \\\n  --out b # c\n```"
    )
    assert quoted(page) == {("launch/atari.py", "--core"), ("launch/report.py", "--out")}
    assert {"launch/atari.py", "launch/evaluate.py", "benchmarks/kernels.py"} <= set(SCRIPTS)


def test_every_quoted_script_exists():
    assert not [script for script in SCRIPTS if not (ROOT / script).is_file()]


def test_every_quoted_target_of_make_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for page in PAGES
        for code in re.findall(r"^```.*?^```|`[^`]+`", page.read_text(), re.MULTILINE | re.DOTALL)
        for target in re.findall(r"(?:^|`)make ([a-z][\w-]*)", code, re.MULTILINE)
    }
    assert "docs" in named and named <= targets


@pytest.mark.docs
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_quoted_flag_is_in_the_help(script):
    known = help_of(script)
    flags = {flag for one, flag in COMMANDS if one == script and flag}
    there = set(re.findall(r"--[a-z][\w-]*", known.replace("_", "-")))
    missing = {flag for flag in flags if flag.replace("_", "-") not in there}
    assert not missing - OTHERS.get(script, set())


# Flags that a page mentions but does not tell the reader to type.
OTHERS: dict[str, set[str]] = {"launch/atari.py": {"--use_lstm"}}


@pytest.mark.docs
@pytest.mark.parametrize("command", SMALL)
def test_small_commands_run(command, tmp_path):
    words = [sys.executable, *shlex.split(command)[1:]]
    done = run(*(str(ROOT / w) if w.endswith(".py") else w for w in words), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout, done.stderr
