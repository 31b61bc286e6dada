"""Every dependency has a lower and an upper bound, and the audit reports its findings."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = PROJECT["project"]["optional-dependencies"]
REQUIREMENTS = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(requirement for extra in OPTIONAL.values() for requirement in extra),
]


def is_bounded(text: str) -> bool:
    """Return whether a requirement is bounded on both sides: later releases are untested."""
    signs = {specifier.operator for specifier in Requirement(text).specifier}
    return "==" in signs or (">=" in signs and bool(signs & {"<", "<="}))


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_requirement_is_bounded_and_comes_from_the_index(requirement):
    assert is_bounded(requirement)
    assert Requirement(requirement).url is None


def test_a_requirement_without_bounds_would_show():
    for loose in ("torch", "torch>=2", "torch<3", "torch!=2.1", "torch>2"):
        assert not is_bounded(loose)


def test_the_known_good_environment_is_the_project_s():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = {Requirement(line).name: line for line in lines if not line.startswith(("#", "--"))}
    assert pinned.pop("torch") == "torch==2.13.0"
    wanted = {Requirement(line).name: line for line in PROJECT["project"]["dependencies"]}
    assert Requirement(wanted.pop("torch")).specifier.contains("2.13.0")
    assert pinned == wanted


def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_audit_asks_about_every_package_at_its_public_version():
    asked = audit().installed()
    assert "fastweights" not in {one.partition("==")[0] for one in asked}
    (torch,) = (one for one in asked if one.startswith("torch=="))
    assert "+" not in torch and len(asked) > 20


def test_the_audit_s_verdict():
    clean, unknown = {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}
    flawed = clean | {"vulns": [{"id": "X-1", "fix_versions": ["1.1"]}]}
    judge = audit().judge
    assert judge([clean]) == (["1 packages audited, 0 findings"], 0)
    lines, code = judge([clean, flawed, unknown])
    assert code == 1 and lines[0] == "a 1: X-1, fixed in 1.1"
    assert "not audited: b" in lines[1] and lines[2] == "2 packages audited, 1 findings"
    lines, code = judge([unknown])  # no advisories at all is a broken index, not a clean result
    assert code == 2 and lines[0].startswith("error: ")


def test_an_audit_that_cannot_ask_is_one_line():
    """The network is missing, or pip-audit is."""
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "audit.py")],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
