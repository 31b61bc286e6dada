"""Compare the training speed of language models with the softmax Transformer's, in tokens/s.

    python benchmarks/language_models.py                              `small` preset; some minutes
    python benchmarks/language_models.py --preset paper --device cuda --json paper.json
    python benchmarks/language_models.py --preset paper --micro-columns 12       on a CPU
    python benchmarks/language_models.py --precision float32

The models alternate: each makes one update per round, on the same tokens. Figures are medians;
ratios are medians of the rounds' ratios. The Transformer uses PyTorch's fused attention. The memory
share is the share of an update's time saved by omitting the recurrence; its inputs and their
gradients are still computed. The text consists of random words of the preset's vocabulary. The cost
of a token depends on its word only in the softmax tails; word frequencies are as in WikiText-103.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from fastweights.host import sleep_while_waiting

    sleep_while_waiting()  # training runs do so, too

import numpy as np
import torch
from rich.console import Console

from benchmarks.json_file import write_json
from benchmarks.sequences import (
    COMPARED_WITH,
    LEFT_OUT,
    PUBLISHED,
    leave_recurrences_out,
    model_table,
    published_times,
)
from benchmarks.timing import Run, add_options, median_ratio, take_turns, use_options
from fastweights.cores import CORES, count_parameters
from fastweights.experiments.language_model import (
    LANGUAGE_PRESETS,
    LanguageOptions,
    language_preset,
)
from fastweights.experiments.language_model.setting import within
from fastweights.host import (
    PRECISIONS,
    choose_precision,
    one_line_errors,
    tune_allocator,
    user_input,
)
from fastweights.launch.cli.parser import Parser, count
from fastweights.tasks.language_model import LanguageTrainer

TYPES = {"paper": 267_735, "small": 256}
WHOLE = "whole"
COLUMNS = {
    "core": "{}",
    "parameters": "{:,}",
    "tokens_per_second": "{:,.0f}",
    "memory_share": "{:.0%}",
    "times_transformer": "{:.2f}",
    "published_times_transformer": "{:.2f}",
}

SIZES = {  # of an update
    "columns": "columns of a batch",
    "micro_columns": "columns per backward pass, which bounds the memory",
    "span": "span of an update in tokens",
}


def chosen(options: argparse.Namespace, core: str) -> LanguageOptions:
    """Return a model's options: the preset's, with the changes from the command line.

    Raises `UserError` for changes that are not possible.
    """
    found, device = language_preset(options.preset, core), torch.device(options.device)
    asked = {name: getattr(options, name) for name in SIZES}
    with user_input():
        if options.layers:
            found = found.with_core({"layers": options.layers})
        trainer = replace(found.trainer, **{name: n for name, n in asked.items() if n})
        precision = choose_precision(options.precision or found.precision, device)
    return replace(found, trainer=trainer, precision=precision)


def words(types: int, count: int) -> np.ndarray:
    """Return random words with frequencies by the Zipf-Mandelbrot law."""
    share = 1 / (np.arange(types) + 2.7)
    drawn = np.random.default_rng(1).random(count)
    return np.searchsorted(np.cumsum(share / share.sum()), drawn).clip(max=types - 1)


def contenders(
    options: argparse.Namespace,
) -> tuple[dict[tuple[str, str], Run], list[dict[str, Any]]]:
    """Return an update of every model, with and without its recurrence, and the models' sizes."""
    runs: dict[tuple[str, str], Run] = {}
    models, types = [], TYPES[options.preset]
    for core in options.cores:
        of_core = chosen(options, core)
        trainer = of_core.trainer
        ids = words(types, trainer.columns * (trainer.span + 1)).astype(np.int32)
        for kind in (WHOLE, LEFT_OUT) if CORES[core].has_fast_weights else (WHOLE,):
            torch.manual_seed(0)
            with user_input():
                model = of_core.build(types).to(options.device)
            if kind == LEFT_OUT:
                leave_recurrences_out(model)
            precision = within(of_core.precision, torch.device(options.device))
            trained = LanguageTrainer(model, ids, trainer, seed=0, precision=precision)
            runs[core, kind] = trained.update
        parameters = count_parameters(model)
        models.append({"core": core, "parameters": parameters})
    return runs, models


def rows(
    models: Sequence[Mapping[str, Any]],
    samples: Mapping[tuple[str, str], list[float]],
    tokens: int,
) -> list[dict[str, Any]]:
    """Return one row per model; samples are seconds per update."""
    beside, found = samples.get((COMPARED_WITH, WHOLE)), []
    for model in models:
        core = model["core"]
        whole, least = samples[core, WHOLE], samples.get((core, LEFT_OUT))
        found.append(
            {
                **model,
                "tokens_per_second": tokens / statistics.median(whole),
                "memory_share": 1 - median_ratio(least, whole) if least else None,
                "times_transformer": median_ratio(beside, whole) if beside else None,
                "published_times_transformer": published_times(core),
                "seconds": {kind: s for (name, kind), s in samples.items() if name == core},
            }
        )
    return found


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument(
        "--preset",
        choices=list(LANGUAGE_PRESETS),
        default="small",
        help="sizes of the models (default small)",
    )
    default = [*PUBLISHED, "delta_mlp", "delta_delta", "lstm"]
    named = {"metavar": "CORE", "help": f"memories to time (default: {' '.join(default)})"}
    parser.add_argument("--cores", nargs="+", choices=list(CORES), default=default, **named)
    for name, what in {**SIZES, "layers": "layers of a model"}.items():
        named = {"metavar": "N", "help": f"{what} (default: the preset's)"}
        parser.add_argument(f"--{name.replace('_', '-')}", type=count, **named)
    text = "precision of matrix products (default: the preset's)"
    parser.add_argument("--precision", choices=PRECISIONS, help=text)
    add_options(parser, "updates of each model", "for the whole benchmark", 120.0)
    return parser


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    machine = use_options(options, *SIZES, "layers")
    tune_allocator()  # training runs do so, too
    first = chosen(options, options.cores[0])
    trainer = first.trainer
    tokens = trainer.columns * trainer.span
    runs, models = contenders(options)
    samples = take_turns(runs, options.rounds, options.seconds, options.device)
    found = rows(models, samples, tokens)
    what = (
        f"{options.preset} preset, {trainer.columns} columns, spans of {trainer.span}, "
        f"{first.precision}"
    )
    Console(width=120).print(model_table(found, machine, what, COLUMNS))
    write_json(options.json, {"machine": machine, "what": what, "rows": found})


if __name__ == "__main__":
    main()
