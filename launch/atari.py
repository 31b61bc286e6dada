"""`python launch/atari.py --core rdn --env Qbert`: train an agent with fast-weight memory."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

import envs
from agents.network import Network, count_parameters
from kernels import use_backend
from launch.allocator import tune_allocator
from launch.checkpoint_folder import CheckpointFolder
from launch.command_line import CommandLine, parse, peek
from launch.devices import choose_precision, use_threads
from launch.display import Display
from launch.failures import one_line_errors, user_input
from launch.metrics import Metrics
from launch.options import RunOptions, differences
from launch.profiling import profiled
from launch.run_folder import RunFolder, default_xpid
from launch.saved_agent import SavedAgent, open_agent
from launch.schedules import Plan
from launch.showcase import before_training, showcase
from launch.stages import Stages
from launch.stopping import Interrupted, StopRequests
from launch.tables import core_table
from launch.torchbeast_flags import translate
from launch.training import Training, train
from launch.training_tests import PeriodicTest


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    arguments, ignored = translate(sys.argv[1:] if arguments is None else arguments)
    with user_input():
        saved = _saved_run(arguments)
        command = parse(arguments, saved.options if saved else None)
        if saved:
            _check_same(saved, command.run)
    if command.list_cores or command.list_envs:
        return _show_lists(command)
    for flag in ignored:
        print(f"note: {flag} has no meaning in this schedule and is ignored", file=sys.stderr)
    return run(command.run, saved)


def run(options: RunOptions, saved: SavedAgent | None = None) -> int:
    """Trains from scratch, or goes on from `saved`; returns the command's exit code."""
    if options.tune_memory:
        tune_allocator()
    if options.kernels != "auto":
        use_backend(options.kernels)
    stop, step = StopRequests(), saved.step if saved else 0
    with user_input():
        use_threads(options.num_threads)
        plan = Plan(options)
        options = replace(options, precision=choose_precision(options.precision, plan.learner))
        environments = plan.environments(step)
        torch.manual_seed(options.seed)
        network = Network(
            options.network(environments[0].frame_shape, environments[0].num_actions)
        ).to(plan.learner)
    folder = _open_folder(options, saved)
    metrics = Metrics(folder.log, folder.path / "tensorboard", saved.step if saved else None)
    stages = Stages("learner", stop.check)
    source = plan.source(network, environments, step, stages, stop.check)
    training = Training(options, network, source, metrics, stages)
    checkpoints = CheckpointFolder(folder.path)
    if saved:
        # Read again now that the folder is ours: the run may have moved on since the first look.
        payload = checkpoints.latest(plan.learner).payload
        training.restore(payload)
        folder.rewind(payload["step"])
    elif options.evaluate_episodes:
        before_training(network, options, folder.path, plan.learner)

    def save() -> None:
        if not options.disable_checkpoint:
            score = metrics.recent()["recent_full_game_return"]
            checkpoints.save(training.checkpoint(), training.steps, score)

    _say_what(options, network, plan, folder.path)
    display = Display(options.learner.total_steps, training.steps)
    rows = training.rows()
    if options.profile:
        rows = profiled(rows, source.threads, folder.path)
    test = PeriodicTest(network, options, training.steps, folder.path, plan.learner, display.say)
    try:
        train(training, rows, display, save, stop, test)
    except Interrupted as interrupted:
        metrics.close()
        folder.finish(successful=False)
        _say_how_to_go_on(folder.path, training.steps, options.disable_checkpoint)
        return 128 + interrupted.signal_number
    metrics.close()
    folder.finish(successful=True)
    if options.evaluate_episodes and not options.disable_checkpoint:
        showcase(folder.path, options)
    else:
        _say_how_to_evaluate(folder.path)
    return 0


def _saved_run(arguments: Sequence[str]) -> SavedAgent | None:
    known = peek(arguments)
    if known.resume is None:
        return None
    if known.preset is not None:
        raise ValueError("--preset and --resume contradict: a resumed run keeps its own options")
    if not known.resume.is_dir():
        raise ValueError(f"--resume {known.resume}: no such run folder; runs/latest is the newest")
    saved = open_agent(known.resume)
    for warning in saved.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return saved


def _check_same(saved: SavedAgent, asked: RunOptions) -> None:
    names = differences(saved.options, asked)
    if names:
        old, new = saved.options.to_dict(), asked.to_dict()
        changes = ", ".join(
            f"--{name.replace('_', '-')} {new[name]} (was {old[name]})" for name in names
        )
        raise ValueError(
            f"a resumed run keeps what it computes, so these contradict --resume: {changes}; "
            "leave them out, or start a new run"
        )
    if saved.step >= saved.options.learner.total_steps:
        raise ValueError(
            f"{saved.run} has finished its {saved.step:,} agent steps; evaluate it with "
            f"python launch/evaluate.py {saved.run}"
        )


def _open_folder(options: RunOptions, saved: SavedAgent | None) -> RunFolder:
    if saved:
        return RunFolder.open(saved.run)
    xpid = options.xpid or default_xpid(options.env, options.core, options.savedir)
    return RunFolder.create(options.savedir, xpid, options.to_dict())


def _show_lists(command: CommandLine) -> int:
    console = Console()
    if command.list_cores:
        console.print(core_table())
    if command.list_envs:
        console.print(", ".join(envs.names()))
    return 0


def _say_what(options: RunOptions, network: Network, plan: Plan, path: Path) -> None:
    millions = count_parameters(network) / 1e6
    print(
        f"training {options.core} ({millions:.3f} M parameters) on {options.env} "
        f"({options.protocol}), seed {options.seed}, {plan}, {options.precision} convolutions\n"
        f"run folder: {path}",
        flush=True,
    )


def _say_how_to_go_on(path: Path, steps: int, without_checkpoint: bool) -> None:
    if without_checkpoint:
        print(f"stopped at {steps:,} agent steps; nothing was saved (--disable-checkpoint)")
        return
    print(f"saved at {steps:,} agent steps; to go on:\n  python launch/atari.py --resume {path}")
    _say_how_to_evaluate(path)


def _say_how_to_evaluate(path: Path) -> None:
    print(f"to evaluate:\n  python launch/evaluate.py {path}")


if __name__ == "__main__":
    sys.exit(main())
