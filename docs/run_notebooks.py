"""Run the notebooks: `python docs/run_notebooks.py [NAME...]`, or `make test-docs`.

The sources are the text files docs/notebooks/*.py. Each is run in an empty folder, with the code of
this checkout, and kept with its outputs as docs/notebooks/*.ipynb.
"""

import argparse
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "notebooks"
NEEDED = ("jupytext", "nbclient", "ipykernel", "pandas")
LARGEST = 400_000  # bytes of a notebook with its outputs


def main(arguments: list[str] | None = None) -> int:
    """Run the notebooks and return the exit code: 1 where a cell failed, 2 where none could run."""
    parser = argparse.ArgumentParser(description="Run the notebooks and keep their outputs.")
    known = sorted(path.stem for path in SOURCES.glob("*.py"))
    parser.add_argument("names", nargs="*", help=f"notebooks to run (default: {', '.join(known)})")
    parser.add_argument("--out", type=Path, default=SOURCES, help="folder for the .ipynb files")
    options = parser.parse_args(arguments)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        print(f"error: notebooks need {', '.join(missing)}: run `make test-docs`", file=sys.stderr)
        return 2
    if unknown := [name for name in options.names if name not in known]:
        print(f"error: no notebook {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = [run(SOURCES / f"{name}.py", options.out) for name in options.names or known]
    return int(any(failed))


def run(source: Path, out: Path) -> str | None:
    """Run one notebook; return and print one line if it failed, in which case nothing is kept."""
    import jupytext
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = jupytext.read(source)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=40"],  # errors only
        )
        try:
            client.execute(env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
        except CellExecutionError as error:
            number = sum(c.cell_type == "code" and bool(c.execution_count) for c in notebook.cells)
            reason = " ".join(f"{error.ename}: {error.evalue}".split())
            line = f"error: {source.name}: code cell {number} failed with {reason}"
            print(line, file=sys.stderr)
            return line
    text = jupytext.writes(_plain(notebook), fmt="ipynb") + "\n"
    if len(text) > LARGEST:
        line = f"error: {source.name}: {len(text):,} bytes with outputs, at most {LARGEST:,}"
        print(line, file=sys.stderr)
        return line
    (out / f"{source.stem}.ipynb").write_text(text)
    print(f"ran {source.name}")
    return None


def _plain(notebook: Any) -> Any:
    """Without what differs from one run or machine to the next and says nothing."""
    notebook.metadata.pop("language_info", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    sys.exit(main())
