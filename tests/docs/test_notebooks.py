"""The notebooks run from their sources; a failing cell prints one line and leaves no file."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import run_notebooks  # noqa: E402

sys.path.pop(0)

pytestmark = pytest.mark.docs
NAMES = sorted(path.stem for path in run_notebooks.SOURCES.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path):
    assert run_notebooks.main([name, "--out", str(tmp_path)]) == 0
    notebook = json.loads((tmp_path / f"{name}.ipynb").read_text())
    kinds = [kind for cell in notebook["cells"] for one in cell.get("outputs", []) for kind in one]
    assert "data" in kinds  # a table or a figure


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("# %%\nx = 1\n\n# %%\nx.nothing\n", "code cell 2 failed with AttributeError: "),
        ("# %%\nx = 1\n\n# %%\nimport os\n\nos._exit(1)\n", "code cell 2 ended the notebook's"),
        ("# %%\nimport time\n\ntime.sleep(60)\n", "code cell 1 took more than 2 seconds"),
    ],
)
def test_a_cell_that_fails_is_one_line(cells, says, tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.py").write_text(cells)
    monkeypatch.setattr(run_notebooks, "SOURCES", tmp_path)
    if "sleep" in cells:
        monkeypatch.setattr(run_notebooks, "SECONDS", 2)
    assert run_notebooks.main(["broken", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: broken.py: {says}")
    assert said.count("\n") == 1 and not list(tmp_path.glob("*.ipynb"))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run_notebooks.main(["logs", "--out", str(tmp_path / "file" / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: --out ")


def test_an_unknown_notebook_is_one_line(capsys):
    assert run_notebooks.main(["maize"]) == 2
    assert "known: logs, memory_maze, own_model" in capsys.readouterr().err
