"""Replay of the first updates of a stored lockstep run, and comparison of their hashes."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fastweights.agents import Learner, Network, Rollout
from fastweights.host import Stages, UserError, choose_device
from fastweights.records import Metrics, read_meta
from fastweights.training.checks import check_options
from fastweights.training.hashes import Hashed, Hashes, hashed, read_hashes
from fastweights.training.loop import Training
from fastweights.training.options import RunOptions
from fastweights.training.schedules.experience import Source
from fastweights.training.trust import without_cluster


def read_hashes_of(run: Path) -> tuple[Hashes, RunOptions]:
    """Return the hashes of the run in folder `run`, and its options with its number of threads.

    Raises:
        ValueError: a run that cannot be replayed; one line.
    """
    plain = read_meta(run).get("args")
    if isinstance(plain, dict) and (task := plain.get("task_name")):
        raise UserError(f"{run} is a run of {task}, not of an agent; only agents can be replayed")
    try:
        options = RunOptions.from_dict(plain)
    except (TypeError, ValueError) as error:
        raise UserError(f"{run} is not a run of this version of the program: {error}") from error
    check_options(options)
    if options.schedule == "asynchronous":
        raise UserError(f"{run} is asynchronous: the order of its rollouts is not reproducible")
    hashes = read_hashes(run)
    try:
        threads = int(hashes.conditions["threads"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the hashes of {run} do not include its number of threads") from error
    graphs = options.cuda_graphs and choose_device(options.device).type == "cuda"
    same = {"num_threads": threads, "schedule": "lockstep", "cuda_graphs": graphs}
    return hashes, without_cluster(replace(options, engine="local", **same))


def first_updates(recorded: Hashes, count: int | None) -> list[Hashed]:
    """Return the first `count` recorded updates, by default all; one-line `ValueError`."""
    known = len(recorded.updates)
    if count is not None and not 1 <= count <= known:
        raise ValueError(f"--updates must lie in [1, {known}], as recorded, not {count}")
    return list(recorded.updates[:count])


def replay_updates(
    options: RunOptions, network: Network, source: Source, stages: Stages
) -> Iterator[Hashed]:
    """Yield the hashes of the run's updates from the first on; leave no files behind."""
    found: list[Hashed] = []

    def record(rollout: Rollout, learner: Learner) -> None:
        found.append(hashed(len(found) + 1, rollout, learner))

    training = Training(options, network, source, Metrics(lambda row: None), stages, record=record)
    with closing(training.rows()) as rows:
        for _ in rows:
            yield found[-1]


def replay_verdict(
    expected: Sequence[Hashed], found: Sequence[Hashed], changes: Sequence[str]
) -> str:
    """Return one line that says whether the updates are identical, or where they start to differ.

    `changes`: differences in the conditions, such as the processor.
    """
    pairs = list(zip(expected, found, strict=True))
    differing = next(((old, new) for old, new in pairs if old != new), None)
    if differing is None:
        return f"identical: {len(expected)} updates, {expected[-1].step:,} agent steps"
    old, new = differing
    names = (
        name for name in ("step", "rollout", "weights") if getattr(old, name) != getattr(new, name)
    )
    return f"first difference: update {old.update}, {' and '.join(names)}; {_reasons(changes)}"


def _reasons(changes: Sequence[str]) -> str:
    if changes:
        return f"possible causes: {'; '.join(changes)}"
    return (
        "no known cause: processor, device, threads, torch, kernels, compiler and code are as "
        "recorded, so the run's options or hashes were changed, or the program is not reproducible"
    )
