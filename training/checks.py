"""Checks of a run's options, individually and in combination, with one-line errors."""

from copy import deepcopy

import torch

from fastweights.agents import unread
from fastweights.cores import Core, core_kind
from fastweights.host import (
    BATCH,
    COUNT,
    NOT_NEGATIVE,
    SEED,
    THREADS,
    check_range,
    divisors_near,
    flag,
)
from fastweights.kernels import check_backend, requested_backend
from fastweights.training.options import RunOptions

_RANGES = {
    **dict.fromkeys(("num_envs", "batch_size"), BATCH),
    **dict.fromkeys(("unroll_length", "bptt", "env_groups", "num_actors"), COUNT),
    **dict.fromkeys(("max_refused_updates", "evaluate_max_frames"), COUNT),
    **dict.fromkeys(("queue_size", "evaluate_episodes", "evaluate_every"), NOT_NEGATIVE),
    **dict.fromkeys(("actor_cpus", "actor_gpus", "keep_every"), NOT_NEGATIVE),
    "actor_threads": THREADS,
    "value_scale": "[1e-9, 1e9]",  # its square is a normal float32
    "checkpoint_minutes": "(0, inf]",
    "seed": SEED,
}


def check_options(options: RunOptions) -> None:
    """Raise a one-line `ValueError` for values that are invalid, alone or in combination."""
    core_kind(options.core)
    check_backend(options.kernels)
    _check_numbers(options)
    _check_batches(options)
    _check_reuse(options)
    _check_run(options)


def check_kernels(core: Core, device: torch.device) -> None:
    """Raise a one-line `ValueError` if `core` on `device` cannot run on the forced backend."""
    kernels = requested_backend()
    if kernels == "auto":
        return
    try:
        with torch.no_grad():
            there = deepcopy(core).eval().to(device)  # draws no random numbers for dropout
            there(torch.zeros(1, 1, core.input_size, device=device))
    except ValueError as error:
        raise ValueError(f"kernels {kernels}: {error}") from error


def _check_numbers(options: RunOptions) -> None:
    given = options.to_dict()
    for name, allowed in _RANGES.items():
        if given[name] != "full":  # --bptt
            check_range(name, given[name], allowed)


def _check_batches(options: RunOptions) -> None:
    if options.engine == "ray":
        _check_ray(options)
    total_steps = options.learner.total_steps
    if total_steps < options.batch_size * options.unroll_length:
        raise ValueError(
            f"--total-steps {total_steps} is less than one update: --batch-size "
            f"{options.batch_size} x --unroll-length {options.unroll_length} agent steps"
        )


def _check_run(options: RunOptions) -> None:
    """Check options that do not change what is computed, and the seed."""
    if options.evaluate_every and not options.evaluate_episodes:
        raise ValueError("--evaluate-every needs --evaluate-episodes, the number of games per test")
    if options.evaluate_max_frames is not None and not options.evaluate_episodes:
        raise ValueError("--evaluate-max-frames needs --evaluate-episodes: it limits those games")
    if options.xpid is not None and not options.xpid.strip():
        raise ValueError("--xpid needs a name that is not empty")
    if options.auto_resume and options.xpid is None:
        raise ValueError("--auto-resume needs --xpid, the name of the run to resume")


def _check_reuse(options: RunOptions) -> None:
    """Check that minibatches divide the batch, and that all options apply to the choices made."""
    minibatches, batch = options.learner.minibatches, options.batch_size
    if batch % minibatches:
        raise ValueError(
            f"--minibatches {minibatches} does not divide --batch-size {batch}: all minibatches "
            f"have equally many rollouts; try --minibatches {divisors_near(batch, minibatches)}"
        )
    if options.learner.kl_limit is not None and not options.learner.reuses_batches:
        raise ValueError(
            "--kl-limit ends the reuse of a batch, but each batch is used once: add --epochs or "
            "--minibatches, or leave --kl-limit out"
        )
    for name, (choice, readers) in unread(options.learner).items():
        given, chosen = flag(name), getattr(options.learner, choice)
        reads = f"--{choice} {' or '.join(readers)}"
        raise ValueError(
            f"{given} belongs to {reads}, and the {choice} is {chosen}: "
            f"leave {given} out, or {reads}"
        )


def _check_ray(options: RunOptions) -> None:
    if options.num_actors and options.num_envs % options.num_actors:
        raise ValueError(
            f"--num-envs {options.num_envs} is not a multiple of --num-actors "
            f"{options.num_actors}: all actors have equally many environments"
        )
