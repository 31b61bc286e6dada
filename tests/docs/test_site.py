"""The site builds strictly and without a network; missing needs are reported in one line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "docs" / "build.py"
NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


def build(out: Path, script: Path = BUILD) -> subprocess.CompletedProcess:
    command = [sys.executable, str(script), "--out", str(out)]
    env = os.environ | NO_NETWORK
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.docs
def test_every_page_is_in_the_site(site):
    assert "docs/index.html" in (site / "index.html").read_text()
    pages = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/how_to/*.md"),
        *ROOT.glob("docs/design/*.md"),
    ]
    pages += [*ROOT.glob("docs/notebooks/*.py"), *ROOT.glob("docs/results/*/README.md")]
    for page in pages:
        assert (site / page.relative_to(ROOT)).with_suffix(".html").is_file()
    assert (site / "search.html").is_file() and (site / "searchindex.js").is_file()


@pytest.mark.docs
def test_the_reference_has_names_types_and_shapes(site):
    text = re.sub(r"<[^>]+>", "", (site / "docs" / "api" / "cores.html").read_text())
    for expected in ("build_core", "initial_state", "T B D", "RecurrentDeltaNet", "is_first"):
        assert expected in text


@pytest.mark.docs
def test_equations_are_mathml_and_nothing_is_loaded_from_elsewhere(site):
    assert "<math " in (site / "docs" / "cores.html").read_text()
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text()
        )
        assert not loaded, page


@pytest.fixture
def copy(tmp_path) -> Path:
    """Return a copy of the checkout with few pages, which tests may break."""
    for folder in ("docs", "cores", "kernels", "host", "fastweights"):
        ignore = shutil.ignore_patterns("__pycache__", "results", "notebooks")
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignore)
    for page in tmp_path.rglob("*.md"):  # also those of kernels, to which no page of the copy links
        page.unlink()
    reference = "# Start\n\n```{eval-rst}\n.. automodule:: fastweights.cores.core\n```\n"
    (tmp_path / "docs" / "index.md").write_text(reference)
    return tmp_path


@pytest.mark.docs
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: None, None),
        (
            lambda root: (root / "docs/index.md").open("a").write("\n[there](nowhere.md)\n"),
            "nowhere.md",
        ),
        (
            lambda root: (root / "cores/core.py").open("a").write("\n\ndef f(x):\n    return x\n"),
            "fastweights.cores.core.f has no docstring: write one",
        ),
        (
            lambda root: (root / "host/names.py").open("a").write("\n\nclass C:\n    pass\n"),
            "fastweights.host.names.C has no docstring: write one",
        ),
        (
            lambda root: (root / "docs/index.md").open("a").write("\n[there](#no-such-part)\n"),
            "no-such-part",
        ),
    ],
)
def test_a_broken_link_or_an_undocumented_name_ends_the_build(spoil, says, copy, tmp_path):
    spoil(copy)
    done = build(tmp_path / "out", copy / "docs" / "build.py")
    assert done.returncode == (0 if says is None else 1), done.stdout + done.stderr
    assert says is None or says in done.stderr


@pytest.mark.parametrize("script", ["build.py", "run_notebooks.py"])
def test_without_the_extra_it_is_one_line(script):
    path = ROOT / "docs" / script
    program = (
        "import runpy, sys; sys.modules.update(sphinx=None, jupytext=None); sys.argv = ['x'];"
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert "make " in done.stderr
