"""Run the notebooks and keep their outputs: `python docs/run_notebooks.py [NAME...]`.

The sources are the text files docs/notebooks/*.py. Each is run in an empty folder, with the code of
this checkout, and kept with its outputs as docs/notebooks/*.ipynb. `make test-docs` runs them
without keeping anything.
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
SECONDS = 600  # for one cell


def main(arguments: list[str] | None = None) -> int:
    """Run the notebooks and return the exit code: 2 where one failed or none could run."""
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
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"error: --out {options.out}: {error.strerror}", file=sys.stderr)
        return 2
    failures = [run(SOURCES / f"{name}.py", options.out) for name in options.names or known]
    for line in filter(None, failures):
        print(f"error: {line}", file=sys.stderr)
    return 2 if any(failures) else 0


def run(source: Path, out: Path) -> str | None:
    """Run one notebook and keep it; return one line if it failed, in which case nothing is kept."""
    import jupytext

    notebook = jupytext.read(source)
    if failure := _execute(notebook):
        return f"{source.name}: {failure}"
    text = jupytext.writes(_plain(notebook), fmt="ipynb") + "\n"
    if len(text) > LARGEST:
        return f"{source.name}: {len(text):,} bytes with outputs, at most {LARGEST:,}"
    (out / f"{source.stem}.ipynb").write_text(text)
    print(f"ran {source.name}")
    return None


def _execute(notebook: Any) -> str | None:
    """Run all cells in an empty folder; return which cell failed, and why."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    begun: list[int] = []  # indices of code cells; a dead kernel may not have reported its last

    def note(cell: Any, cell_index: int) -> None:
        begun.append(cell_index)

    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=40"],  # errors only
            on_cell_execute=note,
        )
        try:
            client.execute(env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
        except CellExecutionError as error:
            reason = f"failed with {error.ename}: {error.evalue}"
        except CellTimeoutError:
            reason = f"took more than {SECONDS} seconds"
        except DeadKernelError:
            reason = "ended the notebook's process"
        else:
            return None
    return f"code cell {max(1, len(begun))} {' '.join(reason.split())}"


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
