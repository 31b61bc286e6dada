"""The command line for training a language model or rebuilding a table from the paper."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from fastweights.cores import CORES, core_defaults, import_core
from fastweights.experiments import RESULT_FILE
from fastweights.experiments.language_model import (
    LANGUAGE_CELL_OPTIONS,
    LANGUAGE_COMMAND,
    LANGUAGE_PRESETS,
    LanguageOptions,
    LanguageTableOptions,
    language_preset,
    make_language_table,
    resumed_language_options,
    run_language_model,
    with_full_paths,
)
from fastweights.host import HelpLayout, UserError, flag, typed_command, user_input
from fastweights.kernels import BACKENDS
from fastweights.launch.cli.parser import check_unchanged, early_options, typed_options
from fastweights.records import resolved_run
from fastweights.tasks.language_model import KINDS, CutOptions, LanguageTrainerConfig

# Options that `--help` describes; the chosen core's options follow.
FIRST = (
    *("data", "core", "preset", "full_context", "vocabulary", "updates", "seed", "resume", "table"),
)
# Grouped by the folder that uses them; options not listed here belong to the run.
GROUPS = {
    "Memory (cores/)": ("core", "core_*", "kernels"),
    "Model (tasks/)": ("positions", "ngrams", "ngram_rows", "cutoffs", "dropout", "initial_std"),
    "Text (tasks/)": ("data", "held_out", "cache", *(one.name for one in fields(CutOptions))),
    "Trainer (tasks/)": (
        *(one.name for one in fields(LanguageTrainerConfig)),
        *("precision", "evaluate_every", "stride", "at_once", "sample_length"),
    ),
    "Tables (experiments/)": ("table", *(one.name for one in fields(LanguageTableOptions))),
    "Run folder (records/)": ("resume", "xpid", "savedir", "checkpoint_minutes"),
    "Run": ("preset", "seed"),
}
HELP = """Train a memory as a language model, or rebuild a table from the paper.

For example:
    {command} --preset small --core rdn     a minute or two; needs no data
    {command} --data wikitext-103 --core delta_rnn --full-context
    {command} --preset small --data my_texts --core lstm
    {command} --resume runs/latest
    {command} --table 1 --preset small      all models, three seeds
    {command} evaluate runs/latest --protocol both --by-position
    {command} generate runs/latest --prompt "The memory" --length 500
    {command} export runs/latest FOLDER

A preset sets all options; flags override individual ones. See docs/language_models.md."""


@dataclass(frozen=True, kw_only=True)
class LanguageCommand:
    """Train a memory as a language model, or rebuild a table from the paper."""

    preset: str = "paper"
    """Set of options: paper (as published, for a GPU) or small (a minute or two per model on one
    CPU core)."""
    resume: Path | None = None
    """Run folder to resume; its options are kept."""
    table: str | None = None
    """Table to write, after training any missing runs: 1 or 4 of the paper, or all (every memory in
    this project, plus n-gram models)."""
    of_table: tyro.conf.OmitArgPrefixes[LanguageTableOptions]
    run: Annotated[LanguageOptions, tyro.conf.arg(name="")]


def train(arguments: Sequence[str]) -> int:
    """Parse the arguments; train or make a table; return the exit code."""
    with user_input():
        known = early_options(arguments, preset={}, core={}, resume={"type": Path})
        import_core(known.core)
        if known.resume and known.preset is not None:
            raise ValueError("--preset contradicts --resume: a resumed run keeps its options")
        name = "paper" if known.preset is None else known.preset
        resume = known.resume and resolved_run(known.resume)
        saved = LanguageOptions.of_run(resume, LANGUAGE_COMMAND) if resume else None
        command = typed_command(LANGUAGE_COMMAND)
        defaults = saved or language_preset(name, known.core or "rdn")
        asked = typed_options(
            LanguageCommand,
            arguments,
            _layout(defaults.core),
            default=LanguageCommand(run=defaults, of_table=LanguageTableOptions()),
            prog=command,
            description=HELP.format(command=command),
        )
        asked.run.check()
        options = with_full_paths(asked.run)
        if asked.table is not None:
            default = language_preset(name, "rdn")
            if refused := _refused(asked, known, default):
                takes = ", ".join(f"--{name}" for name in LANGUAGE_CELL_OPTIONS)
                raise ValueError(
                    f"{', '.join(refused)} cannot be used with --table, whose runs use a preset's "
                    f"options; it takes {takes}, and --only, --seeds and --runs"
                )
    if asked.table is not None:
        changes = {name: getattr(options, name) for name in LANGUAGE_CELL_OPTIONS}
        return make_language_table(asked.table, name, asked.of_table, changes)
    check_unchanged(asked.of_table, "--table")
    if saved:
        with user_input():
            options = resumed_language_options(resume, saved, options)
        if (resume / RESULT_FILE).exists():
            raise UserError(f"{resume} has finished (see {RESULT_FILE}): start a new run")
    return run_language_model(options, resume)


def _layout(core: str) -> HelpLayout:
    own = core_defaults(core) if core in CORES else {}
    values = {"core": CORES, "preset": LANGUAGE_PRESETS, "kernels": BACKENDS, "vocabulary": KINDS}
    return HelpLayout(described=(*FIRST, *own), groups=GROUPS, values=values, defaults=own)


def _refused(
    asked: LanguageCommand, known: argparse.Namespace, default: LanguageOptions
) -> list[str]:
    """Return the flags that a table's cells do not take."""
    if known.core or known.resume:
        return ["--core"] if known.core else ["--resume"]
    given, usual = asked.run.flat(), default.flat()
    names = [
        name for name in given if given[name] != usual[name] and name not in LANGUAGE_CELL_OPTIONS
    ]
    return [flag(name) for name in names]
