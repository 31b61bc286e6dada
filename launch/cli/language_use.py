"""The command lines for using a trained language model: evaluate, generate, export."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from fastweights.cores import core_arguments
from fastweights.experiments.language_model import (
    LANGUAGE_COMMAND,
    LanguageEvaluation,
    SavedModel,
    evaluate_model,
    open_model,
    prompt_tokens,
    write_export,
    written_text,
)
from fastweights.host import (
    NOT_NEGATIVE,
    SEED,
    check_range,
    choose_device,
    compute_exactly,
    expanded,
    typed_command,
    use_threads,
    user_input,
)
from fastweights.launch.cli.parser import typed_options
from fastweights.records import LANGUAGE_MODEL_EXPORT
from fastweights.tasks.language_model import Sampling


@dataclass(frozen=True, kw_only=True)
class Which:
    """A language model, and its memory if this is in a module to import."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder (its best weights), checkpoint or exported folder."""
    core: str | None = None
    """Memory from your own module (my_module:name), to be imported. Required for such models."""


@dataclass(frozen=True, kw_only=True)
class Where(Which):
    """A language model, and the device to run it on."""

    device: str = "auto"
    """Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per CPU core."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(LanguageEvaluation, Where):
    """Evaluate a language model on held-out text: sliding windows, full context, by position.

    Writes RUN/evaluations/*.json and, with --by-position, a figure.
    """


@dataclass(frozen=True, kw_only=True)
class WriteOptions(Sampling, Where):
    """Generate text with a trained language model."""

    prompt: str = ""
    """Text to continue (default: the start of a line)."""
    length: int = 200
    """Number of tokens to generate; 0: no limit, until Ctrl-C."""
    seed: int = 1
    """Seed for sampling the tokens."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Which):
    """Export a language model to safetensors, with its vocabulary, options and a model card."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Output folder."""


def evaluate(arguments: Sequence[str]) -> int:
    """Run `wikitext103 evaluate RUN`."""
    prog = typed_command(LANGUAGE_COMMAND, "evaluate")
    options = typed_options(EvaluateOptions, arguments, prog=prog)
    with user_input():
        options.check()
        saved = _open(options)
    return evaluate_model(saved, options)


def write(arguments: Sequence[str]) -> int:
    """Run `wikitext103 generate RUN --prompt TEXT`: print text as it is generated."""
    options = typed_options(
        WriteOptions, arguments, prog=typed_command(LANGUAGE_COMMAND, "generate")
    )
    with user_input():
        options.check()
        check_range("length", options.length, NOT_NEGATIVE)
        check_range("seed", options.seed, SEED)
        saved = _open(options)
        prompt = prompt_tokens(saved.vocabulary, options.prompt)
    how = {"length": options.length, "seed": options.seed, "with_prompt": bool(options.prompt)}
    for piece in written_text(saved, prompt, options, **how):
        print(piece, end="", flush=True)
    print()
    return 0


def export(arguments: Sequence[str]) -> int:
    """Run `wikitext103 export RUN FOLDER`."""
    options = typed_options(
        ExportOptions, arguments, prog=typed_command(LANGUAGE_COMMAND, "export")
    )
    folder = expanded(options.folder)
    with user_input():
        LANGUAGE_MODEL_EXPORT.check_folder(folder)
        saved = open_model(options.run, torch.device("cpu"), options.core)
    write_export(saved.payload, saved.vocabulary, folder, saved.results())
    own = core_arguments(saved.options.core)
    command = typed_command(LANGUAGE_COMMAND, "generate", folder, *own)
    print(f"exported: {folder}\nto generate text:\n  {command} --prompt ...")
    return 0


def _open(where: Where) -> SavedModel:
    use_threads(where.num_threads)
    compute_exactly()
    return open_model(where.run, choose_device(where.device), where.core)
