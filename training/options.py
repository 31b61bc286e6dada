"""The options of a training run: what the command line, the presets and a checkpoint agree on."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from fastweights.agents.learner import LearnerConfig
from fastweights.agents.network import NetworkConfig
from fastweights.cores import CORES, core_kind
from fastweights.cores.options import CoreSizes, of_core, preset_of_core
from fastweights.host.names import unknown
from fastweights.host.typed_fields import typed
from fastweights.host.whole_numbers import whole_number
from fastweights.kernels import check_backend

Learner = tyro.conf.OmitArgPrefixes[LearnerConfig]


@dataclass(frozen=True, kw_only=True)
class RunOptions(CoreSizes):
    """Everything that decides what a run computes, and a few things about where it runs."""

    env: str = "Qbert"
    """Game (Qbert, ALE/Qbert-v5, QbertNoFrameskip-v4), Catch, TMaze, or any gymnasium id."""
    env_options: tuple[str, ...] = ()
    """name=value pairs. On Atari they change the protocol (sticky=0.25, frame_stack=1; see
    envs/protocols.py), elsewhere they go to the environment's constructor (corridor=10)."""
    protocol: str = "full-game"
    """Atari rules: full-game, published, machado or noop30."""
    core: str = "rdn"
    """Memory; `--list-cores` shows them all."""
    bptt: Literal["full"] | int = "full"
    """Steps that gradients reach back through the core: full, or a number (1: as published)."""
    stem: str = "auto"
    """auto, resnet (15 convolutions), shallow (2), shallow_norm (2, each normalised) or mlp (for
    vectors); see docs/design/stems.md."""
    precision: str = "auto"
    """Of the stem's convolutions: float32, bfloat16, or auto (bfloat16 where all devices multiply
    it in hardware)."""
    channels_last: bool = True
    """Keep the stem's pictures with channels last in memory, as convolutions are fastest."""
    kernels: str = "auto"
    """Backend of the recurrences: auto, reference, chunked, cpu or cuda; see docs/kernels.md.

    With reference or chunked all other kernels of ours are left out, too.
    """
    tune_memory: bool = True
    """Have the C library keep freed memory, in large pages (Linux)."""
    feed_last_action: bool = False
    """Feed the last action to the core; the published agents did not."""
    num_envs: int = 32
    """Environments played at once; in lockstep a multiple of the batch size."""
    batch_size: int = 32
    """Rollouts in one update."""
    unroll_length: int = 50
    """Agent steps in a rollout; gradients reach back at most this far."""
    learner: Learner = field(default_factory=LearnerConfig)
    seed: int = 1
    """Of weights, actions and environments: another seed, other games."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """CPU threads; 0: all cores."""
    schedule: Literal["auto", "lockstep", "asynchronous"] = "auto"
    """lockstep (collect, learn, repeat), asynchronous (both at once), auto:
    asynchronous on a GPU, lockstep on a CPU."""
    engine: Literal["local", "ray"] = "local"
    """local, or ray: actors in processes of their own, on many machines; see docs/clusters.md."""
    ray_address: str | None = None
    """ray: the cluster to join, auto or host:port (default: a Ray of this run's own)."""
    num_actors: int | None = None
    """ray: actor processes (default: one a CPU); with --engine local TorchBeast's --num-envs."""
    actor_cpus: float = 1.0
    """ray: CPUs set aside for an actor, which uses as many threads."""
    actor_gpus: float = 0.0
    """ray: the part of a GPU set aside for an actor, which then acts on it; 0: it acts on CPUs."""
    env_groups: int = 2
    """asynchronous: groups of environments, each in a thread; one emulates, others infer."""
    queue_size: int | None = None
    """asynchronous, ray: rollouts that acting may be ahead (default: one a group or actor)."""
    actor_device: str | None = None
    """asynchronous: where actions are chosen (default: --device)."""
    learner_device: str | None = None
    """asynchronous: where gradients are computed (default: --device)."""
    cuda_graphs: bool = False
    """Where actions are chosen on a GPU: replay the step there as a CUDA graph, for less work of
    the host's."""
    profile: bool = False
    """Write where the time goes: profile.txt, and trace.json for chrome://tracing or Perfetto."""
    max_refused_updates: int = 10
    """Batches in a row with a loss or gradient that is not finite, each refused, that end a run."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints: the most that a crash can lose."""
    disable_checkpoint: bool = False
    """Write no checkpoints (the run cannot be resumed or evaluated)."""
    evaluate_episodes: int = 0
    """Full games played before and after training, for the closing table and clip; 0: none."""
    evaluate_every: int = 0
    """Agent steps between such games during training; RUN/evaluations.csv has the scores. 0: none.
    """
    evaluate_max_frames: int | None = None
    """Limit of such a game, emulator frames (agent steps where there is no emulator); what is
    longer is cut and counted. Default: that of training's games, or 108000, half an hour."""
    savedir: Path = Path("runs")
    """Where run folders are made."""
    xpid: str | None = None
    """The run folder's name (default: game, core and time)."""
    auto_resume: bool = False
    """Go on with the run named by --xpid if there is one: for jobs that are started again."""

    def network(self, frame_shape: tuple[int, ...], num_actions: int) -> NetworkConfig:
        """The network that these options describe, for an environment's frames and actions."""
        return NetworkConfig(
            frame_shape=tuple(frame_shape),
            num_actions=num_actions,
            core=self.core,
            core_options=self.core_options(),
            stem=self.stem,
            precision=self.precision,
            channels_last=self.channels_last,
            feed_last_action=self.feed_last_action,
            bptt=None if self.bptt == "full" else self.bptt,
        )

    def environment_options(self) -> dict[str, Any]:
        """`env_options` as a dictionary, numbers as numbers."""
        return dict(_name_and_value(pair) for pair in self.env_options)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, flat, with TorchBeast's names where it has one; `from_dict` reads them."""
        flat = asdict(self) | {"savedir": str(self.savedir), "env_options": list(self.env_options)}
        return flat | flat.pop("learner")

    @classmethod
    def from_dict(cls, flat: dict[str, Any]) -> "RunOptions":
        """The inverse of `to_dict`; options newer than the dictionary take their defaults.

        Raises a one-line `ValueError` for unknown names, values of another type, and where game
        and core are missing.
        """
        learner, own = typed(LearnerConfig, flat), typed(cls, flat)
        learner_names = {f.name for f in fields(LearnerConfig)}
        own_names = {f.name for f in fields(cls)} - {"learner"}
        if unknown := sorted(map(str, set(flat) - learner_names - own_names)):
            raise ValueError(f"these options do not belong to this version: {', '.join(unknown)}")
        if missing := sorted({"env", "core"} - set(flat)):
            raise ValueError(f"these options are missing: {', '.join(missing)}")
        return cls(**own | {"learner": LearnerConfig(**learner)})


# What a resumed run may do differently: where and how it runs, not what it learns.
CHANGEABLE_ON_RESUME = (
    "device",
    "num_threads",
    "tune_memory",
    "precision",
    "micro_batch",
    "schedule",
    "engine",
    "ray_address",
    "num_actors",
    "actor_cpus",
    "actor_gpus",
    "env_groups",
    "queue_size",
    "actor_device",
    "learner_device",
    "cuda_graphs",
    "profile",
    "max_refused_updates",
    "checkpoint_minutes",
    "disable_checkpoint",
    "evaluate_episodes",
    "evaluate_every",
    "evaluate_max_frames",
    "savedir",
    "xpid",
    "auto_resume",
)


def _name_and_value(pair: str) -> tuple[str, Any]:
    name, equals, text = pair.partition("=")
    if not (name and equals):
        raise ValueError(f"--env-options takes name=value pairs, not {pair!r}")
    for kind in (whole_number, float):
        try:
            return name, kind(text)
        except ValueError:
            continue
    return name, {"true": True, "false": False, "none": None}.get(text.lower(), text)


_LEAST = {
    "num_envs": 1,
    "batch_size": 1,
    "unroll_length": 1,
    "total_steps": 1,
    "bptt": 1,
    "env_groups": 1,
    "max_refused_updates": 1,
    "queue_size": 0,
    "micro_batch": 0,
    "evaluate_episodes": 0,
    "evaluate_every": 0,
    "evaluate_max_frames": 1,
}


def check(options: RunOptions) -> None:
    """Raises a one-line `ValueError` for numbers that cannot work, alone or together."""
    core_kind(options.core)
    check_backend(options.kernels)
    _check_counts(options)
    _check_batches(options)
    _check_learner(options.learner)
    _check_run(options)


def _check_counts(options: RunOptions) -> None:
    given = options.to_dict()
    for name, least in _LEAST.items():
        value = given[name]
        if isinstance(value, int) and value < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")


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
    """What does not change what is computed, and the seed."""
    if options.evaluate_every and not options.evaluate_episodes:
        raise ValueError("--evaluate-every needs --evaluate-episodes: how many games each time")
    if options.xpid is not None and not options.xpid.strip():
        raise ValueError("--xpid needs a name, not an empty one")
    if options.auto_resume and options.xpid is None:
        raise ValueError("--auto-resume needs --xpid: the name of the run to go on with")
    if not options.checkpoint_minutes > 0:
        raise ValueError(f"--checkpoint-minutes must be above 0, not {options.checkpoint_minutes}")
    if not 0 <= options.seed < 2**31:
        raise ValueError(f"--seed must lie in [0, 2^31), not {options.seed}")


def _check_learner(learner: LearnerConfig) -> None:
    clips = ("grad_norm_clipping", "rho_clip", "c_clip", "pg_rho_clip")  # inf: none
    least_zero = ("learning_rate", "alpha", "epsilon", "momentum", *clips[1:])
    for name, value in asdict(learner).items():
        flag = f"--{name.replace('_', '-')}"
        endless = name not in clips and value in (math.inf, -math.inf)
        if isinstance(value, float) and (math.isnan(value) or endless):
            raise ValueError(f"{flag} must be a number, not {value}")
        if name in least_zero and value < 0:
            raise ValueError(f"{flag} must be at least 0, not {value}")
        if name in ("alpha", "momentum") and value > 1:
            raise ValueError(f"{flag} must be at most 1, not {value}")
    if not 0 <= learner.discounting <= 1:
        raise ValueError(f"--discounting must lie in [0, 1], not {learner.discounting}")
    if learner.grad_norm_clipping <= 0:
        raise ValueError(
            f"--grad-norm-clipping must be above 0 (inf: none), not {learner.grad_norm_clipping}"
        )


def _check_ray(options: RunOptions) -> None:
    if options.num_actors is not None and options.num_actors < 1:
        raise ValueError(f"--num-actors must be at least 1, not {options.num_actors}")
    if options.num_actors and options.num_envs % options.num_actors:
        raise ValueError(
            f"--num-envs {options.num_envs} is not a multiple of --num-actors "
            f"{options.num_actors}: every actor plays as many"
        )
    for name in ("actor_cpus", "actor_gpus"):
        if not 0 <= getattr(options, name) < math.inf:
            flag, value = f"--{name.replace('_', '-')}", getattr(options, name)
            raise ValueError(f"{flag} must be at least 0 and finite, not {value}")


def differences(saved: RunOptions, asked: RunOptions) -> list[str]:
    """The names of options that a resumed run may not change, and that `asked` would."""
    old, new = saved.to_dict(), asked.to_dict()
    return [n for n in old if n not in CHANGEABLE_ON_RESUME and old[n] != new[n]]


def changes(saved: RunOptions, asked: RunOptions) -> list[str]:
    """`differences` as flags: "--core rdn (was lstm)"."""
    old, new = saved.to_dict(), asked.to_dict()
    return [
        f"--{name.replace('_', '-')} {new[name]} (was {old[name]})"
        for name in differences(saved, asked)
    ]


def paper(core: str) -> RunOptions:
    """The published recipe with gradients through the whole unroll (the default)."""
    return RunOptions(core=core)


def published(core: str) -> RunOptions:
    """The recipe as its code trained: fast-weight cores get gradients through one step only."""
    bptt = 1 if core in CORES and CORES[core].has_fast_weights else "full"
    return RunOptions(core=core, bptt=bptt, protocol="published")


# What keeps a core from learning, in presets that do not claim to be the published recipe.
NOT_AS_PUBLISHED = {"input_map": "identity"}


def quick(core: str) -> RunOptions:
    """Minutes on two cores: the shallow stem, short rollouts, a picture at the end."""
    return replace(
        paper(core),
        stem="shallow",
        unroll_length=20,
        learner=LearnerConfig(total_steps=500_000, micro_batch=0),
        checkpoint_minutes=1.0,
        evaluate_episodes=32,
        **of_core(core, NOT_AS_PUBLISHED),
    )


def plain(core: str) -> RunOptions:
    """The paper's recipe without anything that makes it fast: what speed is measured against."""
    return replace(
        paper(core),
        precision="float32",
        channels_last=False,
        kernels="reference",
        tune_memory=False,
        learner=LearnerConfig(micro_batch=0),
    )


def maze(core: str) -> RunOptions:
    """Half a minute: a T-maze with a corridor of 10, which only a memory can win."""
    lstm = {"width": 64, "forget_bias": 4.0}
    small = {"width": 32, "heads": 2, "layers": 1, "feedforward": 32, **NOT_AS_PUBLISHED}
    learner = LearnerConfig(
        total_steps=600_000,
        learning_rate=1e-3 if core == "lstm" else 2e-3,
        epsilon=1e-5,
        entropy_cost=0.02,
        reduction="mean",
        micro_batch=0,
    )
    return RunOptions(
        env="TMaze",
        env_options=("corridor=10",),
        core=core,
        num_envs=48,
        batch_size=48,
        unroll_length=22,
        learner=learner,
        num_threads=1,  # for networks this small, more cost more than they bring
        evaluate_episodes=200,
        **preset_of_core(core, lstm if core == "lstm" else small),
    )


PRESETS = {"paper": paper, "published": published, "quick": quick, "plain": plain, "maze": maze}


def preset(name: str, core: str) -> RunOptions:
    """The options of a named preset; an unknown name raises a `ValueError` listing the known."""
    if name not in PRESETS:
        raise ValueError(unknown("preset", name, PRESETS))
    return PRESETS[name](core)
