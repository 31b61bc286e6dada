"""The options of a training run, for the command line, presets and checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import tyro

from fastweights.agents import LearnerConfig, NetworkConfig
from fastweights.cores import CoreSizes
from fastweights.envs import resolve, shows_last_action
from fastweights.host import contradictions, typed_values

Learner = tyro.conf.OmitArgPrefixes[LearnerConfig]


@dataclass(frozen=True, kw_only=True)
class RunOptions(CoreSizes):
    """All options of a run: what it computes, and where it runs."""

    env: str = "Qbert"
    """Game (Qbert, ALE/Qbert-v5, QbertNoFrameskip-v4), Catch, TMaze, or any gymnasium id."""
    env_options: tuple[str, ...] = ()
    """name=value pairs. On Atari they change the protocol (sticky=0.25, frame_stack=1; see
    envs/protocols.py); elsewhere they are passed to the environment's constructor (corridor=10)."""
    bootstrap_truncated: bool = False
    """Bootstrap from the value estimate where a time limit cuts an episode off (Pardo et al. 2018);
    false, as published: treat the cut as the episode's end."""
    protocol: str = "full-game"
    """Atari rules: full-game, published, machado or noop30."""
    core: str = "rdn"
    """Memory (`--list-cores` shows all), or my_module:name for your own."""
    bptt: Literal["full"] | int = "full"
    """Number of steps to backpropagate through the core: full (the whole unroll), or a number
    (published: 1)."""
    stem: str = "auto"
    """Vision network: auto, resnet (15 convolutions), shallow (2), shallow_norm (2, each
    normalised), shallow_centred (the same, with filters that sum to 0), shallow_soft_centred (keeps
    a quarter of each sum) or mlp (for vectors); see docs/design/stems.md."""
    precision: str = "auto"
    """Precision of the stem's convolutions: float32, bfloat16, or auto (bfloat16 on GPUs and
    CPUs where it is expected to be faster, otherwise float32)."""
    channels_last: bool = True
    """Store the stem's images channels-last, the fastest layout for convolutions."""
    kernels: str = "auto"
    """Backend of the recurrences: auto, reference, chunked, cpu or cuda; see docs/kernels.md.

    With reference or chunked, PyTorch operations also replace all other kernels.
    """
    tune_memory: bool = True
    """Let the C library keep freed memory, in large pages (Linux)."""
    feed_last_action: Literal["auto"] | bool = "auto"
    """Feed the last action to the core: true, false (as published), or auto (true for POPGym, as in
    its baselines; false elsewhere)."""
    reset_inputs: bool = False
    """At the first step of an episode, feed the core a reward and a last action of 0, as at the
    first step of a test game. False, as published: those at the end of the episode before."""
    head_norm: bool = False
    """Apply LayerNorm to the core's output before the policy and value heads, so that the size of
    policy updates does not depend on the core; not used by the published agents."""
    head_init: Literal["torch", "orthogonal"] = "torch"
    """Initial weights of the policy and value heads: torch (PyTorch's uniform, as published) or
    orthogonal (gains 0.01 and 1, for an initial policy that is nearly uniform)."""
    value_scale: float = 1.0
    """Unit of the value head's output and of the value loss, in discounted clipped rewards."""
    num_envs: int = 32
    """Number of environments; in lockstep, a multiple of the batch size."""
    batch_size: int = 32
    """Number of rollouts per update."""
    unroll_length: int = 50
    """Number of agent steps per rollout; gradients reach back at most this far."""
    learner: Learner = field(default_factory=LearnerConfig)
    seed: int = 1
    """Random seed for weights, actions and environments."""
    init_from: Path | None = None
    """Run folder or checkpoint with the initial weights of a new run. The core, the stem, the sizes
    and the game's number of actions must match. The optimiser starts afresh."""

    device: str = "auto"
    """Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per CPU core."""
    actor_threads: int = 0
    """lockstep: number of CPU threads that choose actions; 0: as many as --num-threads. One is
    fastest for a small network: waking more threads takes longer than they save."""
    schedule: Literal["auto", "lockstep", "asynchronous"] = "auto"
    """Order of acting and learning: lockstep (they alternate), asynchronous (both at once), or auto
    (asynchronous on a CUDA GPU, otherwise lockstep)."""
    engine: Literal["local", "ray"] = "local"
    """Where actors run: local (threads of this process) or ray (separate processes, on one machine
    or several); see docs/clusters.md."""
    ray_address: str | None = None
    """ray: address of the cluster, auto or host:port (default: the run starts its own Ray)."""
    num_actors: int | None = None
    """ray: number of actor processes (default: one per CPU); with --engine local, TorchBeast's name
    for --num-envs."""
    actor_cpus: float = 1.0
    """ray: number of CPUs reserved for each actor, and its number of threads."""
    actor_gpus: float = 0.0
    """ray: fraction of a GPU for each actor to act on; 0: actors run on CPUs."""
    env_groups: int = 2
    """asynchronous: number of groups of environments, each with its own thread: one group emulates
    while another chooses actions."""
    queue_size: int | None = None
    """asynchronous, ray: maximum number of queued rollouts (default: one per group or actor)."""
    actor_device: str | None = None
    """asynchronous: device that chooses actions (default: --device)."""
    learner_device: str | None = None
    """asynchronous, ray: device that computes gradients (default: --device)."""
    cuda_graphs: bool = False
    """Record the acting step as a CUDA graph: 1.8 times as many agent steps per second on an H200.
    Requires acting on a GPU, and a core that does not synchronise with it."""
    profile: bool = False
    """Write the time spent in each stage (profile.txt) and a trace for Perfetto (trace.json)."""
    max_refused_updates: int = 10
    """Number of consecutive updates with a non-finite loss or gradient after which the run ends."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; a crash loses at most this much training."""
    keep_every: int = 0
    """Number of agent steps between checkpoints that stay, for test games over the course of
    training; 0: only the newest three, the best, and those at 50 and 200 million steps stay."""
    disable_checkpoint: bool = False
    """Write no checkpoints (the run cannot be resumed or evaluated)."""
    evaluate_episodes: int = 0
    """Number of full test games before and after training, for the final table and clip; 0:
    none."""
    evaluate_every: int = 0
    """Number of agent steps between test games during training, whose scores are written to
    RUN/evaluations.csv; 0: none."""
    evaluate_max_frames: int | None = None
    """Maximum length of a test game in emulator frames (agent steps without an emulator). Longer
    games are cut off and reported. Default: the training limit, or 108000 (half an hour)."""
    savedir: Path = Path("runs")
    """Folder that holds the run folders."""
    xpid: str | None = None
    """Name of the run folder (default: game, core and time)."""
    auto_resume: bool = False
    """Resume the run named by --xpid if it exists; for jobs that are restarted."""

    def __post_init__(self) -> None:
        if isinstance(self.env_options, Mapping):
            pairs = tuple(_as_text(name, value) for name, value in self.env_options.items())
            object.__setattr__(self, "env_options", pairs)

    def network(self, frame_shape: tuple[int, ...], num_actions: int) -> NetworkConfig:
        """Return the network's configuration for an environment's frames and actions."""
        return NetworkConfig(
            frame_shape=tuple(frame_shape),
            num_actions=num_actions,
            core=self.core,
            core_options=self.core_options(),
            stem=self.stem,
            precision=self.precision,
            channels_last=self.channels_last,
            feed_last_action=self.sees_last_action(),
            reset_inputs=self.reset_inputs,
            bptt=None if self.bptt == "full" else self.bptt,
            head_norm=self.head_norm,
            head_init=self.head_init,
            value_scale=self.value_scale,
            normalize_values=self.learner.normalize_values,
        )

    def sees_last_action(self) -> bool:
        """The resolved value of `feed_last_action`, as stored with a run."""
        if self.feed_last_action == "auto":
            return shows_last_action(self.env)
        return self.feed_last_action

    @property
    def fills_one_batch(self) -> bool:
        """Whether a collection is one batch, so that lockstep learns with the acting weights."""
        return self.num_envs == self.batch_size

    def environment_options(self) -> dict[str, Any]:
        """Return `env_options` as a dictionary, with the types that the environment declares.

        Imports the environment's module if there are options.

        Raises:
            ValueError: a malformed pair, or options of an unknown environment; one line.
        """
        pairs = [_name_and_text(pair) for pair in self.env_options]
        texts = dict(pairs)
        if len(texts) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"--env-options sets {twice} twice: give it once")
        return resolve(self.env).options_of(texts) if texts else {}

    def to_dict(self) -> dict[str, Any]:
        """Return a flat dict of plain values, with TorchBeast's names where it has the option."""
        flat = asdict(self) | {"savedir": str(self.savedir), "env_options": list(self.env_options)}
        flat["init_from"] = None if self.init_from is None else str(self.init_from)
        return flat | flat.pop("learner")

    @classmethod
    def from_dict(cls, flat: dict[str, Any]) -> "RunOptions":
        """Return the options that `to_dict` described; newer options that are missing get defaults.

        Raises:
            ValueError: an unknown name, a value of another type, or no game or core; one line.
        """
        learner, own = typed_values(LearnerConfig, flat), typed_values(cls, flat)
        learner_names = {f.name for f in fields(LearnerConfig)}
        own_names = {f.name for f in fields(cls)} - {"learner"}
        if unknown := sorted(map(str, set(flat) - learner_names - own_names)):
            raise ValueError(f"this version has no such options: {', '.join(unknown)}")
        if missing := sorted({"env", "core"} - set(flat)):
            raise ValueError(f"these options are missing: {', '.join(missing)}")
        return cls(**own | {"learner": LearnerConfig(**learner)})


# Options that a resumed run may change: where and how it runs, not what it learns.
CHANGEABLE_ON_RESUME = (
    "device",
    "num_threads",
    "actor_threads",
    "tune_memory",
    "precision",
    "channels_last",
    "kernels",
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
    "keep_every",
    "disable_checkpoint",
    "evaluate_episodes",
    "evaluate_every",
    "evaluate_max_frames",
    "savedir",
    "xpid",
    "auto_resume",
)


def _as_text(name: str, value: object) -> str:
    if not isinstance(value, str | int | float | None):
        raise ValueError(
            f"env_options: {name} must be text, a number, True, False or None, not {value!r}: "
            "register an environment with this value (docs/how_to/own_environment.md)"
        )
    return f"{name}={value}"


def _name_and_text(pair: str) -> tuple[str, str]:
    name, equals, text = pair.partition("=")
    if not (name and equals):
        raise ValueError(f"--env-options takes name=value pairs, not {pair!r}")
    return name, text


def changed_flags(saved: RunOptions, asked: RunOptions, *, shorter: bool = True) -> list[str]:
    """Return options in `asked` that a resumed run may not change: "--core rdn (was lstm)".

    A run with a constant learning rate may be lengthened and, if `shorter`, shortened.
    """
    may_differ = shorter or asked.learner.total_steps >= saved.learner.total_steps
    length = ("total_steps",) if may_differ and saved.learner.has_constant_rate else ()
    return contradictions(_decided(saved), _decided(asked), (*CHANGEABLE_ON_RESUME, *length))


def _decided(options: RunOptions) -> dict[str, Any]:
    return options.to_dict() | {"feed_last_action": options.sees_last_action()}
