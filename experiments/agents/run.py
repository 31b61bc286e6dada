"""One run of an agent: train, save, test before, during and after, and print the next steps."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from fastweights.agents import ImageStem, LearnerConfig, Network
from fastweights.cores import count_parameters, in_main_program
from fastweights.envs import resolve
from fastweights.evaluation import PeriodicTest, before_training, own_tests, show_trained
from fastweights.host import (
    Interrupted,
    ProgressDisplay,
    Stages,
    StopRequests,
    profiled,
    restoring_torch,
    tune_allocator,
    typed_command,
    user_input,
)
from fastweights.kernels import restoring_backend
from fastweights.records import Metrics, RunRecords, fitting
from fastweights.training import (
    Diverged,
    NothingLearned,
    Plan,
    Replicas,
    RunOptions,
    SavedAgent,
    Training,
    as_resumed,
    assembled,
    check_name,
    check_options,
    check_unfinished,
    hash_recorder,
    mark_finished,
    module_arguments,
    network_seed,
    notes_on_environment,
    notes_on_options,
    open_records,
    plan_for,
    record_nothing,
    save,
    take_weights,
    train,
    try_out,
    with_full_path,
    without_cluster,
)


@restoring_backend()
@restoring_torch()
def run_agent(
    options: RunOptions, saved: SavedAgent | None = None, usual: RunOptions | None = None
) -> int:
    """Train from scratch, or resume from `saved`; return the command's exit code.

    `usual`: options such as a preset's, by default those of `saved`. Notes on options without
    effect name only options that differ from them.

    If torchrun started several processes, this process is one of the learners.

    A resumed run stays in its folder and computes the same; `RunOptions.init_from` starts a new run
    with the weights of another.

    Raises:
        UserError: invalid options, a file that cannot be written, or a run that fails; one line.
            Also a saved run that has finished.
    """
    with user_input():
        options = RunOptions.from_dict(options.to_dict())  # checks and converts the types
        options = with_full_path(options)
        check_options(options)
    if options.tune_memory:
        tune_allocator()
    replicas = Replicas.from_environment()
    with user_input():
        if saved:
            options = as_resumed(saved, options)
            check_unfinished(saved, options)
        if not saved and replicas.leads:
            check_name(options)
        options, plan = plan_for(options, replicas)
    usual = usual or (saved.options if saved else RunOptions())
    for note in notes_on_options(options, usual, plan.schedule) if replicas.leads else ():
        print(f"note: {note}", file=sys.stderr)
    with replicas.joined(plan.learner):
        return _run(options, saved, plan)


@restoring_backend()
@restoring_torch()
def close_agent(options: RunOptions, saved: SavedAgent) -> None:
    """Complete a run that was killed after its last checkpoint: record its end, play test games.

    If torchrun started several processes, the first one does this.

    Raises:
        UserError: not writable, or another process is writing the run; one line.
    """
    mark_finished(saved)
    print(f"{saved.run} has finished its {saved.step:,} agent steps")
    if not options.evaluate_episodes or not Replicas.from_environment().leads:
        return
    if any(played.agent_steps >= saved.step for played in own_tests(saved.run, options).values()):
        return
    with user_input():
        # Test games need no Ray, which may no longer be there.
        options, plan = plan_for(replace(without_cluster(options), engine="local"))
    with closing(plan):
        show_trained(saved.run, options)


def _run(options: RunOptions, saved: SavedAgent | None, plan: Plan) -> int:
    replicas, step = plan.replicas, saved.step if saved else 0
    stop = StopRequests()
    stages = Stages("learner", stop.check)
    # Environments are reset here, so that failures leave no run.
    with assembled(options, plan, stages, step) as (network, source):
        if not saved:
            begins_with = take_weights(network, options)
            if begins_with and replicas.leads:
                print(begins_with)
            try_out(options)
        # With `stop`, signals wait for the run's first checkpoint.
        with stop, _records(options, saved, network, replicas) as records:
            can_replay = plan.schedule == "lockstep" and replicas.count == 1 and not saved
            record = record_nothing
            if can_replay:
                record = hash_recorder(records.path, options, plan.learner, network)
            metrics = Metrics(records.log if records else lambda row: None)
            training = Training(options, network, source, metrics, stages, replicas, stop, record)
            _restore(training, records, saved, replicas)
            code = _train_and_record(training, records, plan)
    if code == 0 and records:
        _close(options, records.path)
    return code


def _records(
    options: RunOptions, saved: SavedAgent | None, network: Network, replicas: Replicas
) -> AbstractContextManager[RunRecords | None]:
    """Return the run's records, closed at the end of a `with`; None if another learner has them."""
    return closing(open_records(options, saved, network)) if replicas.leads else nullcontext()


def _train_and_record(training: Training, records: RunRecords | None, plan: Plan) -> int:
    """Train to the end, record the outcome, and return the exit code."""
    options, network = training.options, training.learner.network
    display = ProgressDisplay(options.learner.total_steps, training.steps)
    rows, test = training.rows(), _no_test
    try:
        if records:
            if options.evaluate_episodes and training.steps == 0:
                _play_before(training, network, options, records, plan)
            if options.profile:
                rows = profiled(rows, training.source.threads, records.path)
            for note in notes_on_environment(options) if training.steps == 0 else ():
                print(f"note: {note}", file=sys.stderr)
            _say_what(options, network, plan, records.path)
            where = (records.path, plan.learner, display.say)
            test = PeriodicTest(network, options, training.steps, *where)
        train(training, rows, display, partial(save, training, records), test)
    except Interrupted as interrupted:
        if records:
            records.finish(successful=False)
            _say_how_to_go_on(options, records.path, training.steps)
        return 128 + interrupted.signal_number
    except (Diverged, NothingLearned) as failure:
        if not records:
            raise
        records.finish(successful=False)
        log = records.path / "logs.csv"
        raise type(failure)(f"{failure}; losses are logged in {log}") from failure
    except Exception:  # of the user's game, for example; once it is fixed, the name is free again
        if records and training.steps == 0 and not (records.path / "evaluations").exists():
            records.discard()
        raise
    if records:
        records.finish()
    return _stopped_at_the_end(training, records)


def _stopped_at_the_end(training: Training, records: RunRecords | None) -> int:
    """Return the exit code of a finished run: 0, or that of a signal that came in its last update.

    After a signal no test games are played.
    """
    try:
        training.stop.check()
    except Interrupted as interrupted:
        if records:
            print(f"stopped, with all {training.steps:,} agent steps trained; no test games played")
            _say_how_to_evaluate(training.options, records.path)
        return 128 + interrupted.signal_number
    return 0


def _restore(
    training: Training, records: RunRecords | None, saved: SavedAgent | None, replicas: Replicas
) -> None:
    """Start all learners from the same state: the checkpoint, or the first learner's weights.

    Only torch's random numbers differ between learners. Then begin the records: a new run gets its
    first checkpoint before it learns anything.
    """
    newest = None
    if saved and records:
        # Read again while holding the lock: the run may have advanced since `saved` was read.
        found = records.checkpoints.latest()
        records.checkpoints.mend_best(found)
        newest = found.payload
    if saved or replicas.count > 1:
        begin = replicas.broadcast(newest or training.checkpoint())
        with fitting(saved.path) if saved else nullcontext():
            training.restore(begin)
    if replicas.count > 1:  # each learner's part of a batch needs dropout masks of its own
        torch.manual_seed(network_seed(training.options.seed, training.steps, replicas.rank))
    if records:
        is_new = saved is None and not training.options.disable_checkpoint
        records.begin(training.steps, training.checkpoint() if is_new else None)


def _play_before(
    training: Training, network: Network, options: RunOptions, records: RunRecords, plan: Plan
) -> None:
    """Play the test games of the untrained network; a run stopped meanwhile can be resumed."""
    try:
        before_training(network, options, records.path, plan.learner, training.stop.check)
    except Interrupted as request:
        training.leave(request)
        raise


def _close(options: RunOptions, path: Path) -> None:
    if options.evaluate_episodes and not options.disable_checkpoint:
        show_trained(path, options)
    else:
        _say_how_to_evaluate(options, path)


def _no_test(step: int, check: Callable[[], None]) -> None:
    """Play no test games: only the first learner plays them."""


def _say_what(options: RunOptions, network: Network, plan: Plan, path: Path) -> None:
    millions = count_parameters(network) / 1e6
    rules = "" if resolve(options.env).rom is None else f" ({options.protocol})"
    has_pictures = isinstance(network.stem, ImageStem)
    precision = f", {options.precision} convolutions" if has_pictures else ""
    print(
        f"training {options.core} ({millions:.3f} M parameters) on {options.env}{rules}, "
        f"seed {options.seed}, {plan}{precision}\n"
        f"run folder: {path}",
        flush=True,
    )
    is_published_length = options.learner.total_steps == LearnerConfig.total_steps
    shorter = "days without a GPU; --preset quick learns in minutes, --preset afternoon in an hour"
    if not has_pictures:
        shorter = "hours; --preset vectors learns in minutes"
    if is_published_length and (rules or not has_pictures) and plan.learner.type == "cpu":
        print(f"note: {options.learner.total_steps:,} agent steps take {shorter}", file=sys.stderr)


def _say_how_to_go_on(options: RunOptions, path: Path, steps: int) -> None:
    if options.disable_checkpoint:
        print(f"stopped at {steps:,} agent steps; nothing was saved (--disable-checkpoint)")
        return
    cluster = ["--ray-address", options.ray_address] if options.ray_address else []
    command = typed_command("atari", "--resume", path, *module_arguments(options), *cluster)
    how = "" if in_main_program(options.core) else f"; to resume:\n  {command}"
    print(f"saved at {steps:,} agent steps{how}")
    _say_how_to_evaluate(options, path)


def _say_how_to_evaluate(options: RunOptions, path: Path) -> None:
    if options.disable_checkpoint:
        print(f"no weights were saved (--disable-checkpoint); log: {path / 'logs.csv'}")
        return
    if in_main_program(options.core):
        print(f"to evaluate in this program: open_agent({str(path)!r}, core={options.core!r})")
        return
    print(f"to evaluate:\n  {typed_command('evaluate', path, *module_arguments(options))}")
