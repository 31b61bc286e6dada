"""Named sets of options: the published recipes, and recipes that take minutes or hours on a CPU."""

from dataclasses import replace
from typing import Any

from fastweights.agents import LearnerConfig
from fastweights.cores import CORES, of_core, preset_of_core
from fastweights.envs import Name, resolve
from fastweights.host import one_of
from fastweights.training.options import RunOptions


def paper(core: str) -> RunOptions:
    """Return the published recipe, but with gradients through the whole unroll (the default)."""
    return RunOptions(core=core)


def published(core: str) -> RunOptions:
    """Return the published code's recipe: gradients of fast-weight cores reach one step back."""
    bptt = 1 if core in CORES and CORES[core].has_fast_weights else "full"
    return RunOptions(core=core, bptt=bptt, protocol="published")


# Changes that some cores need in order to learn, for presets other than the published recipes.
NOT_AS_PUBLISHED = {"input_map": "identity"}


# The clipped surrogate with sample reuse, which learns within minutes or hours on two CPU cores.
REUSE = LearnerConfig(
    objective="ppo",
    epochs=4,
    minibatches=4,
    optimizer="adam",
    learning_rate=5e-4,
    entropy_cost=0.003,
    grad_norm_clipping=0.5,
    reduction="mean",
    normalize_advantages=True,
    micro_batch=0,
)


def quick(core: str) -> RunOptions:
    """Return options for minutes on two CPU cores: a small stem, each batch used up to 4 times."""
    return replace(
        paper(core),
        stem="shallow_centred",
        head_init="orthogonal",
        num_envs=16,
        batch_size=16,
        unroll_length=64,
        learner=replace(REUSE, total_steps=450_000, kl_limit=0.01),
        actor_threads=1,
        checkpoint_minutes=1.0,
        evaluate_episodes=32,
        **of_core(core, NOT_AS_PUBLISHED),
    )


def afternoon(core: str) -> RunOptions:
    """Return options for about an hour on one CPU core: `quick`, longer, with more exploration.

    Credit also reaches back further: with a lambda of 0.95, some runs on Pong make no progress for
    a million agent steps, in games that repeat (docs/results/afternoon).
    """
    options = quick(core)
    longer = {"total_steps": 2_500_000, "entropy_cost": 0.01, "gae_lambda": 0.97}
    return replace(options, learner=replace(options.learner, **longer), checkpoint_minutes=10.0)


def plain(core: str) -> RunOptions:
    """Return the paper's recipe without optimisations, as the baseline of speed comparisons."""
    return replace(
        paper(core),
        precision="float32",
        channels_last=False,
        kernels="reference",
        tune_memory=False,
        learner=LearnerConfig(micro_batch=0),
    )


# The same learner, with learning rates for networks without images.
SMALL_REUSE = replace(REUSE, learning_rate=1e-3, clip_range=0.2)


def maze(core: str) -> RunOptions:
    """Return options for half a minute: a T-maze with corridor length 10, which needs memory."""
    blocks = {"width": 32, "heads": 2, "layers": 1, "feedforward": 32, **NOT_AS_PUBLISHED}
    return RunOptions(
        env="TMaze",
        env_options=("corridor=10",),
        core=core,
        head_init="orthogonal",
        num_envs=48,
        batch_size=48,
        unroll_length=44,
        learner=replace(SMALL_REUSE, total_steps=300_000, entropy_cost=0.01),
        num_threads=1,  # for networks this small, more threads cost more than they gain
        evaluate_episodes=200,
        **_sizes(core, blocks, {"width": 64, "forget_bias": 4.0}),
    )


def vectors(core: str) -> RunOptions:
    """Return options for minutes on one CPU core, for games with vector observations."""
    blocks = {"width": 64, "heads": 4, "layers": 2, "feedforward": 128, **NOT_AS_PUBLISHED}
    return RunOptions(
        env="popgym:popgym-RepeatPreviousEasy-v0",
        core=core,
        head_init="orthogonal",
        num_envs=64,
        batch_size=64,
        unroll_length=64,
        learner=replace(
            SMALL_REUSE,
            total_steps=1_500_000,
            minibatches=8,
            entropy_cost=0.0,
            normalize_values=True,
        ),
        num_threads=1,  # for networks this small, more threads cost more than they gain
        **_sizes(core, blocks, {"width": 128}),
    )


def _sizes(core: str, blocks: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a core with residual blocks, or without, such as an LSTM."""
    has_blocks = core not in CORES or "heads" in CORES[core].options()
    return preset_of_core(core, blocks if has_blocks else others)


PRESETS = {
    "paper": paper,
    "published": published,
    "quick": quick,
    "afternoon": afternoon,
    "plain": plain,
    "maze": maze,
    "vectors": vectors,
}


def preset(name: str, core: str, env: str | None = None) -> RunOptions:
    """Return a preset's options for a core and a game (default: the preset's).

    A preset's environment options apply only to its own game, and its Atari protocol only to Atari
    games.

    Raises:
        ValueError: an unknown preset; one line that lists the known ones.
    """
    one_of("preset", name, PRESETS)
    options = PRESETS[name](core)
    if env is None:
        return options
    if options.env_options and not _is_same_game(env, options.env):
        options = replace(options, env_options=())
    if options.protocol != RunOptions.protocol and not _is_atari(env):
        options = replace(options, protocol=RunOptions.protocol)
    return replace(options, env=env)


def changes_of_preset(options: RunOptions) -> list[str]:
    """Return the names of the options that differ from the preset `paper` for the same game."""
    usual = preset("paper", options.core, options.env).to_dict()
    return [name for name, value in options.to_dict().items() if value != usual[name]]


def _is_atari(env: str) -> bool:
    found = _resolved(env)
    return found is None or found.rom is not None


def _is_same_game(one: str, other: str) -> bool:
    """Return whether two names mean the same game."""
    if one == other:
        return True
    found, known = _resolved(one), _resolved(other)
    return found is not None and known is not None and found[:2] == known[:2]


def _resolved(env: str) -> Name | None:
    """Return the resolved name; None for an unknown name, which is reported later."""
    try:
        return resolve(env)
    except ValueError:
        return None
