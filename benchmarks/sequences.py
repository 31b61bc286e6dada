"""Measure how fast sequence models train: tokens/s with our kernels and with the reference loop.

    python benchmarks/sequences.py                            `small` preset; some minutes
    python benchmarks/sequences.py --cores rdn lstm --json sequences.json
    python benchmarks/sequences.py --preset paper --no-reference --device cuda
    python benchmarks/sequences.py --task parity --cores lstm gru rdn srwm

The task is code execution unless --task names another. A token is one position of a batch. The
models and backends alternate: each makes one update per round, on the same batch of sequences. The
table gives medians and these speed ratios, which are medians of the rounds' ratios:

- times reference: the kernels relative to the reference loop in the same model.
- times torch: the kernels relative to the same model with PyTorch's LSTM or GRU.
- times possible: the upper limit of "times reference" for any kernels. It is measured without the
  recurrence: one of its inputs is used as its output, and all inputs have gradients, but the
  recurrent weights of RDN and SRWM have none.
- times transformer: the model relative to the softmax Transformer with PyTorch's fused attention,
  beside the published ratio.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from fastweights.host import sleep_while_waiting

    sleep_while_waiting()  # training runs do so, too

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.json_file import write_json
from benchmarks.machine import in_words
from benchmarks.timing import Run, add_options, median_ratio, take_turns, use_options
from fastweights import kernels
from fastweights.cores import CORES, Core, count_parameters
from fastweights.cores.fast_weight_core import FastWeightCore
from fastweights.experiments import sequence_preset
from fastweights.experiments.sequences.presets import SEQUENCE_PRESETS
from fastweights.host import one_line_errors, tune_allocator
from fastweights.kernels import State
from fastweights.launch.cli.parser import Parser
from fastweights.tasks import TASKS, Sequences, Trainer, draw_splits
from fastweights.tasks.sequences import Batch

# Training speed of language models in 1,000 words/s (Irie et al. 2021, section 4.1).
PUBLISHED = {
    "transformer": 33,
    "lt": 66,
    "delta_net": 63,
    "delta_rnn": 41,
    "rdn": 35,
    "delta_lstm": 14,
}
COMPARED_WITH = "transformer"
WITHOUT_A_LOOP = {COMPARED_WITH, "feedforward", "feedforward_gated"}
LEFT_OUT = "left out"  # used as the name of a backend
COLUMNS = {
    "core": "{}",
    "parameters": "{:,}",
    "tokens_per_second": "{:,.0f}",
    "sequences_per_second": "{:,.0f}",
    "reference_tokens_per_second": "{:,.0f}",
    "times_reference": "{:.1f}",
    "times_torch": "{:.2f}",
    "times_possible": "{:.1f}",
    "times_transformer": "{:.2f}",
    "published_times_transformer": "{:.2f}",
}
OWN = "torch"  # used as the name of a backend: PyTorch's network in place of the core
OWN_NETWORKS = {"lstm": nn.LSTM, "gru": nn.GRU}


def contenders(
    options: argparse.Namespace, sequences: Sequences
) -> tuple[dict[tuple[str, str], Run], list[dict[str, Any]]]:
    """Return one update of every model on every backend, and the models' sizes."""
    runs, models = {}, []
    for core in options.cores:
        chosen = sequence_preset(options.preset, core, TASKS[options.task]())
        chosen = chosen.reaching(int(sequences.lengths.max()))
        backends = ["auto"]
        if options.reference and core not in WITHOUT_A_LOOP:
            backends.append("reference")
            if CORES[core].has_fast_weights:
                backends.append(LEFT_OUT)
        if core in OWN_NETWORKS:
            backends.append(OWN)
        for backend in backends:
            torch.manual_seed(0)
            model = chosen.build().to(options.device)
            if backend == LEFT_OUT:
                leave_recurrences_out(model)
            if backend == OWN:
                model.core = TorchsOwn(model.core, OWN_NETWORKS[core]).to(options.device)
            trainer = Trainer(model, sequences, sequences, None, chosen.trainer, seed=0)
            batch = sequences.batch(torch.arange(len(sequences.lengths)))
            batch = Batch(*(tensor.to(options.device) for tensor in batch))
            runs[core, backend] = partial(_update, trainer, batch, backend)
        parameters = count_parameters(model)
        models.append({"core": core, "parameters": parameters})
    return runs, models


class TorchsOwn(nn.Module):
    """PyTorch's LSTM or GRU with a core's sizes, used in place of the core; it ignores resets."""

    def __init__(self, core: Core, network: type[nn.Module]):
        super().__init__()
        self.network = network(core.input_size, core.output_size)

    def initial_state(self, batch_size: int) -> None:
        """Return None: the network starts from zeros."""

    def unroll(self, x: Tensor, state: None, is_first: Tensor) -> tuple[Tensor, None]:
        return self.network(x)[0], state


def leave_recurrences_out(model: nn.Module) -> None:
    """Use an input of every recurrence as its output; all inputs are still computed and learned."""
    for memory in model.modules():
        if isinstance(memory, FastWeightCore):
            memory.unroll = partial(_unroll_nothing, memory)


def _unroll_nothing(
    memory: FastWeightCore, x: Tensor, state: State, is_first: Tensor
) -> tuple[Tensor, State]:
    """Return the recurrence's first input that has the size of its output, and `state`."""
    inputs = memory.program(x)
    place = next(i for i, each in enumerate(inputs) if each.shape[-1] == memory.head_size)
    ready = _zeros(tuple(each.shape for each in inputs), x.device)
    y = _Nothing.apply(place, ready, *inputs)
    return (y if y.ndim == x.ndim + 1 else y[..., 0, :]).flatten(-2), state


@cache
def _zeros(shapes: tuple[torch.Size, ...], device: torch.device) -> list[Tensor]:
    return [torch.zeros(shape, device=device) for shape in shapes]


class _Nothing(torch.autograd.Function):
    """Return one of the inputs; the gradients of the others are zeros, allocated beforehand."""

    @staticmethod
    def forward(ctx: Any, place: int, ready: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        ctx.place, ctx.ready = place, ready
        return inputs[place].view_as(inputs[place])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads = [*ctx.ready]
        grads[ctx.place] = grad
        return None, None, *grads


def _update(trainer: Trainer, batch: Batch, backend: str) -> None:
    with kernels.backend("auto" if backend in (LEFT_OUT, OWN) else backend):
        trainer.update(batch)


def rows(
    models: list[dict[str, Any]],
    samples: dict[tuple[str, str], list[float]],
    tokens: int,
    strings: int,
) -> list[dict[str, Any]]:
    """Return one row per model; samples are seconds per update.

    An update has `tokens` tokens in `strings` sequences."""

    def rate(times: list[float] | None) -> float | None:
        return tokens / statistics.median(times) if times else None

    beside, found = samples.get((COMPARED_WITH, "auto")), []
    for model in models:
        core = model["core"]
        fast, slow = samples[core, "auto"], samples.get((core, "reference"))
        least, own = samples.get((core, LEFT_OUT)), samples.get((core, OWN))
        found.append(
            model
            | {
                "tokens_per_second": rate(fast),
                "sequences_per_second": rate(fast) * strings / tokens,
                "reference_tokens_per_second": rate(slow),
                "times_reference": median_ratio(slow, fast) if slow else None,
                "times_torch": median_ratio(own, fast) if own else None,
                "times_possible": median_ratio(slow, least) if slow and least else None,
                "times_transformer": median_ratio(beside, fast) if beside else None,
                "published_times_transformer": published_times(core),
                "seconds": {b: times for (name, b), times in samples.items() if name == core},
            }
        )
    return found


def model_table(
    found: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any],
    what: str,
    columns: Mapping[str, str],
) -> Table:
    """Return a table with one row per model; `columns` maps keys of `found` to formats."""
    table = Table(title=what, caption=in_words(machine))
    for name in columns:
        table.add_column(name.replace("_", " "), justify="left" if name == "core" else "right")
    for row in found:
        table.add_row(
            *("" if row[name] is None else form.format(row[name]) for name, form in columns.items())
        )
    return table


def published_times(core: str) -> float | None:
    """Return the published speed of a core relative to the Transformer's; None if not published."""
    published = PUBLISHED.get(core)
    return published and round(published / PUBLISHED[COMPARED_WITH], 2)


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument(
        "--preset",
        choices=list(SEQUENCE_PRESETS),
        default="small",
        help="sizes of the models (default small)",
    )
    parser.add_argument(
        "--task",
        choices=list(TASKS),
        default="code_execution",
        metavar="TASK",
        help="task to train on (default code_execution)",
    )
    default = ["lstm", *PUBLISHED]
    parser.add_argument(
        "--cores",
        nargs="+",
        choices=list(CORES),
        default=default,
        metavar="CORE",
        help=f"memories to time (default: {' '.join(default)})",
    )
    parser.add_argument(
        "--reference",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time the reference loop, too; it is slow and takes gigabytes in the paper's sizes",
    )
    add_options(parser, "updates of each model and backend", "for the whole benchmark", 120.0)
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(words)
    machine = use_options(options)
    tune_allocator()  # training runs do so, too
    chosen = sequence_preset(options.preset, options.cores[0], TASKS[options.task]())
    batch_size = chosen.trainer.batch_size
    sequences = draw_splits(chosen.task, {"train": batch_size}, seed=1)["train"]
    tokens = batch_size * int(sequences.lengths.max())
    runs, models = contenders(options, sequences)
    samples = take_turns(runs, options.rounds, options.seconds, options.device)
    found = rows(models, samples, tokens, batch_size)
    what = f"{chosen.task}, {options.preset} preset, {batch_size} sequences, {tokens:,} tokens"
    Console(width=200).print(model_table(found, machine, what, COLUMNS))
    write_json(options.json, {"machine": machine, "what": what, "rows": found})


if __name__ == "__main__":
    main()
