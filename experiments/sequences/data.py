"""A task's sequences in a folder: generated once and cached, by one process at a time."""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from fastweights.experiments.learning_options import changed_learning_options
from fastweights.experiments.sequences.options import SIZES, SequenceOptions
from fastweights.experiments.token_files import read_splits, stem, write_splits
from fastweights.host import (
    UserError,
    describe_os_error,
    expanded,
    flags,
    make_folder,
    wait_for_lock,
    without_new_folders,
)
from fastweights.records import CheckpointError, load_checkpoint, save_checkpoint
from fastweights.tasks import UNASKED, Sequences, Task, draw_splits

FILE = "sequences.pt"
_COMPARED = 64  # training sequences that are drawn again to tell whether the task has changed


def sequences_of(options: SequenceOptions) -> dict[str, Sequences]:
    """Return the splits selected by `options`, from their folder, or generated and stored there.

    If two commands request them at the same time, one generates and the other waits.

    Raises:
        UserError: the folder holds sequences of other settings or something else, the task has too
            few different sequences, or a token file has an invalid line.
    """
    if options.files:
        return read_splits(source_of(options), options.task)
    path = source_of(options)
    if not path.exists():  # an existing file is complete, and may belong to another user
        with without_new_folders(path.parent):
            _draw_once(options, path)
    return _read(path, options)


def source_of(options: SequenceOptions) -> Path:
    """Return the folder of token files, or the file of generated sequences, for `options`."""
    if options.files:
        return expanded(options.files)
    return expanded(options.data or default_folder(options)) / FILE


def with_files(options: SequenceOptions, defaults: SequenceOptions) -> SequenceOptions:
    """Return options whose `--files`, if given, is absolute: a run may be resumed elsewhere.

    Raises:
        ValueError: with `--files`, which are read whole, options that select which sequences to
            generate differ from `defaults`; one line.
    """
    if not options.files:
        return options
    changed = changed_learning_options(defaults, options)
    if drawing := [name for name in (*SIZES, "data") if name in changed]:
        raise ValueError(
            f"{flags(drawing)} cannot be used with --files, which are always read whole: leave out "
            "one or the other"
        )
    return replace(options, files=expanded(options.files).resolve())


def sized(options: SequenceOptions, splits: Mapping[str, Sequences]) -> SequenceOptions:
    """Return options with the sizes of the splits read from `--files`.

    The test size is that of the largest test split.
    """
    if not options.files:
        return options
    train, valid, *tests = (len(splits[name].lengths) for name in options.task.splits)
    return replace(options, **dict(zip(SIZES, (train, valid, max(tests)), strict=True)))


def held_out_note(options: SequenceOptions, splits: Mapping[str, Sequences]) -> str:
    """Return a line if training sequences of `--files` also select the weights; else "".

    In published data strings may repeat, and every tenth training string is held out. If the test
    splits select the weights, as published, there is no line.
    """
    if not options.files or options.selecting != ("valid",):
        return ""
    learned = {sample.tokens for sample in splits["train"].samples()}
    held_out = [sample.tokens for sample in splits["valid"].samples()]
    if not (repeated := sum(tokens in learned for tokens in held_out)):
        return ""
    name = stem(options.task, "valid")
    return (
        f"note: {repeated:,} of {len(held_out):,} held-out sequences, which select the weights, "
        f"are also training sequences; {name}.src and {name}.tgt of --files may have others"
    )


def longest_in(splits: Mapping[str, Sequences]) -> int:
    """Return the maximum number of words in a sequence."""
    return max(int(split.lengths.max()) for split in splits.values())


def digest_of(splits: Mapping[str, Sequences]) -> str:
    """Return a digest of all splits' tokens, targets and lengths."""
    total = blake2b(digest_size=16)
    for name, sequences in splits.items():
        for part in sequences:
            total.update(f"{name} {part.dtype} {len(part)}\n".encode())
            total.update(part.contiguous().numpy())
    return total.hexdigest()


def export_sequences(options: SequenceOptions, folder: Path) -> list[Path]:
    """Write the splits of `sequences_of` to `folder` as token files, and return the files.

    Raises:
        UserError: the folder cannot be created (checked before sequences are generated); or as in
            `sequences_of` and `write_splits`.
    """
    with without_new_folders(folder):
        make_folder(folder, "--export")
        return write_splits(folder, options.task, sequences_of(options))


def statistics_table(options: SequenceOptions) -> Table:
    """Return statistics of the training sequences, next to the paper's."""
    learned = sequences_of(options)["train"]
    table = Table("", title=f"{options.task}, {len(learned.lengths):,} sequences to learn from")
    for column in ("here", "paper"):
        table.add_column(column, justify="right")
    for statistic in options.task.statistics(learned.samples()):
        table.add_row(*statistic)
    return table


def default_folder(options: SequenceOptions) -> Path:
    """Return a folder beside the runs: `data/code_execution-variables=3-...`."""
    described = settings(options)
    pairs = [f"{name}={value}" for part in described.values() for name, value in part.items()]
    return (
        options.savedir / "data" / re.sub(r"[^\w=.-]+", "-", "-".join([options.task.name, *pairs]))
    )


def settings(options: SequenceOptions) -> dict[str, dict[str, Any]]:
    """Return the options that the sequences depend on."""
    return {"task": asdict(options.task), "draw": options.sizes | {"seed": options.data_seed}}


def _draw_once(options: SequenceOptions, path: Path) -> None:
    """Generate the sequences into `path`, unless another process has done so meanwhile."""
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = wait_for_lock(folder)
    except OSError as error:
        flag = "--data" if options.data else "--savedir"
        raise UserError(
            f"cannot store sequences in {folder} ({describe_os_error(error)}): choose a {flag}"
        ) from error
    try:
        if not path.exists():
            _make(options, path)
    except UserError:
        lock.remove()
        raise
    finally:
        lock.release()


def _make(options: SequenceOptions, path: Path) -> None:
    total = sum(options.sizes.values())
    with Progress(transient=True) as progress:
        bar = progress.add_task(f"drawing {total:,} sequences", total=total)
        try:
            splits = draw_splits(
                options.task, options.sizes, options.data_seed, lambda: progress.advance(bar)
            )
        except ValueError as error:
            raise UserError(str(error)) from error
    contents = {name: split._asdict() for name, split in splits.items()}
    save_checkpoint({"task": options.task.name, "settings": settings(options), **contents}, path)


def _read(path: Path, options: SequenceOptions) -> dict[str, Sequences]:
    try:
        contents = load_checkpoint(path)
        found = {"task": contents["task"], "settings": contents["settings"]}
        described = _described(found)
        splits = {split: Sequences(**contents[split]) for split in options.task.splits}
        if not all(isinstance(part, Tensor) for split in splits.values() for part in split):
            raise TypeError("sequences must be tensors")
    except (CheckpointError, AttributeError, LookupError, TypeError) as error:
        raise _unreadable(path) from error
    wanted = {"task": options.task.name, "settings": settings(options)}
    if found != wanted:
        raise UserError(
            f"{path} holds sequences of other settings: {described}, but requested are "
            f"{_described(wanted)}; choose another --data, or leave it out"
        )
    if not all(_whole(splits[name], size, options.task) for name, size in options.sizes.items()):
        raise _unreadable(path)
    if _is_outdated(splits["train"], options):
        raise UserError(
            f"{path} was generated by another version of {options.task.name}: delete it to "
            "generate its sequences again"
        )
    return splits


def _is_outdated(found: Sequences, options: SequenceOptions) -> bool:
    """Return whether the task now draws or answers its first training sequences otherwise."""
    if options.task.every("train") is not None:  # their order depends on their number
        return False
    count = min(_COMPARED, len(found.lengths))
    drawn = draw_splits(options.task, {"train": count}, options.data_seed)["train"]
    pairs = zip(found, drawn, strict=True)
    return any(not torch.equal(part[: len(now)], now) for part, now in pairs)


def _unreadable(path: Path) -> UserError:
    return UserError(f"{path} holds no readable sequences: delete it to generate them again")


def _whole(split: Sequences, size: int, task: Task) -> bool:
    """Return whether `split` has `size` complete sequences of the task's words and answers."""
    if any(part.ndim != 1 or part.is_floating_point() or not len(part) for part in split):
        return False
    tokens, targets, lengths = split
    positions = int(lengths.sum())
    answered = targets[targets != UNASKED]
    return (
        (len(lengths), len(tokens), len(targets)) == (size, positions, positions)
        and int(lengths.min()) > 0
        and _below(tokens, len(task.words))
        and _below(answered, len(task.answers))
    )


def _below(numbers: Tensor, count: int) -> bool:
    return bool(((numbers >= 0) & (numbers < count)).all())


def _described(what: dict[str, Any]) -> str:
    pairs = {**what["settings"]["task"], **what["settings"]["draw"]}
    return f"{what['task']} with " + ", ".join(f"{name} {value}" for name, value in pairs.items())
