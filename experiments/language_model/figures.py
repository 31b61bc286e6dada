"""The rows of the language-model tables, and the options of the runs behind each row."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from fastweights.cores import CORES, is_named_by_size
from fastweights.evaluation import read_rows
from fastweights.experiments.language_model.options import (
    LanguageOptions,
    language_preset,
    of_version,
)
from fastweights.experiments.published import SCORES
from fastweights.host import unknown_name

EVERYTHING = "all"  # instead of a table: all memories of the project
SPANS, FULL = "spans", "full context"
# Memories that `all` also trains with carried state. In the small preset they have no positional
# encoding in either case, so only the context differs.
CARRIED = ("lstm", "delta_net", "delta_rnn", "rdn")


class Figure(NamedTuple):
    """A row in a table: a model, and how it reads the text."""

    row: str
    core: str
    context: str
    version: str = ""
    published: Mapping[str, float] | None = None  # perplexities by split, and parameters

    def options(self, preset_name: str, changes: Mapping[str, Any]) -> LanguageOptions:
        """Return the options of its runs, without seed and folder."""
        options = language_preset(preset_name, self.core)
        if self.version:
            options = options.with_core({"version": self.version})
        if preset_name == "paper":
            options = options.with_core(of_version(self.core, self.version))
            if self.context == FULL:  # as in the published command
                options = options.with_core({"norm": "post"})
        trainer = replace(options.trainer, full_context=self.context == FULL)
        changes = {name: value for name, value in changes.items() if value is not None}
        return replace(options, trainer=trainer, **changes)

    @property
    def name(self) -> str:
        """The name for run folders."""
        return f"{self.core}{self.version}{'-full-context' if self.context == FULL else ''}"


@cache
def published() -> dict[str, list[Figure]]:
    """Return the rows of Irie et al. 2021, Tables 1 and 4, in their order."""
    tables: dict[str, list[Figure]] = {}
    for row in read_rows(SCORES / "language_2021.csv"):
        scores = {name: float(row[name]) for name in ("valid", "test", "parameters")}
        context = FULL if row["full_context"] == "yes" else SPANS
        figure = Figure(row["row"], row["core"], context, row["version"], scores)
        tables.setdefault(row["table"], []).append(figure)
    return tables


def figures(table: str) -> list[Figure]:
    """Return the rows of a table; raise a one-line `ValueError` for an unknown table."""
    tables = published()
    if table == EVERYTHING:
        every = [Figure(name, name, SPANS) for name in CORES if not is_named_by_size(name)]
        return every + [Figure(name, name, FULL) for name in CARRIED]
    if table not in tables:
        raise ValueError(unknown_name("--table", table, [*tables, EVERYTHING]))
    return tables[table]
