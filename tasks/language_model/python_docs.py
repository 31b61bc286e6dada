"""English text available on every machine: the documentation in Python's standard library.

The text is the language reference (`pydoc_data.topics`, which `help()` shows) and the docstrings of
the standard library's modules, without tests. Releases of Python differ slightly, so results name
the release and the digest of the text.
"""

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from fastweights.tasks.language_model.parts import of_bytes
from fastweights.tasks.language_model.source import Source, cut

PYTHON_DOCS = "python-docs"  # used in place of a path
PYTHON_DOCS_HELD_OUT = 0.05
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_SHORTEST = 200  # minimum number of characters in a document


def python_docs_source(
    held_out: float = PYTHON_DOCS_HELD_OUT, library: Path | None = None
) -> Source:
    """Return the text, with documents ordered by digests of their names. Takes seconds.

    `library`: the folder whose docstrings are used; None for the standard library.
    """
    documents = {f"topic {name}": text for name, text in topics.items()}
    documents |= dict(_docstrings(library or Path(sysconfig.get_paths()["stdlib"])))
    named = sorted(documents, key=lambda name: hashlib.blake2b(name.encode()).digest())
    text = "\n".join(f"{documents[name].strip()}\n" for name in named)
    return cut(
        PYTHON_DOCS, "Python's documentation", [of_bytes(PYTHON_DOCS, text.encode())], held_out
    )


def _docstrings(library: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and all docstrings of each module with at least `_SHORTEST` characters."""
    for path in sorted(library.rglob("*.py")):
        if _LEFT_OUT & set(path.relative_to(library).parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue  # a template, or unreadable
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        text = "\n\n".join(doc for doc in found if doc)
        if len(text) >= _SHORTEST:
            yield f"module {path.relative_to(library)}", text
