"""A trained agent in a checkpoint: its content, and the network made from it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from fastweights.agents import Learner, Network
from fastweights.cores import core_arguments, core_config, core_kind, import_core
from fastweights.envs import resolve
from fastweights.host import (
    check_contained,
    check_kept,
    code_revision,
    flag,
    typed_command,
)
from fastweights.records import (
    AGENT_EXPORT,
    CheckpointError,
    CheckpointFolder,
    FoundCheckpoint,
    built_for,
    check_stays,
    exported_weights,
    first_misfit,
    fitting,
    is_export,
    load_checkpoint,
    read_plain,
    resolved_run,
    run_of,
    runs_near,
)
from fastweights.training.checks import check_kernels
from fastweights.training.options import RunOptions, changed_flags
from fastweights.training.torchbeast_model import is_torchbeast, translated

_LIKE_WEIGHTS = ("square_avg", "momentum_buffer", "exp_avg", "exp_avg_sq")  # optimiser tensors


def pack(options: RunOptions, learner: Learner, stats: dict[str, Any]) -> dict[str, Any]:
    """Return everything needed to resume a run, as plain values under TorchBeast's names."""
    network, state = learner.network, learner.state_dict()
    return {
        "model_state_dict": network.state_dict(),
        "optimizer_state_dict": state["optimizer"],
        "scheduler_state_dict": state["schedule"],
        "flags": options.to_dict(),
        "network": {
            "frame_shape": list(network.config.frame_shape),
            "num_actions": network.config.num_actions,
        },
        "stats": stats,
        "rng": {"torch": torch.get_rng_state()},
        "git": code_revision(),
    }


def unpack(payload: dict[str, Any], learner: Learner) -> None:
    """Restore a learner and torch's random state from the result of `pack`.

    Missing or wrong parts raise the errors of dicts and torch; `fitting` turns them into one line.
    """
    network, optimizer = learner.network, learner.optimizer
    network.load_state_dict(payload["model_state_dict"])
    settings = _settings(optimizer)
    schedule = payload["scheduler_state_dict"]
    learner.load_state_dict({"optimizer": payload["optimizer_state_dict"], "schedule": schedule})
    if _settings(optimizer) != settings:
        raise ValueError("its optimiser has other settings than its options")
    for weight, state in optimizer.state.items():
        if not all(isinstance(value, torch.Tensor | int | float) for value in state.values()):
            raise ValueError("its optimiser's state is not made of tensors and numbers")
        averages = {name: state[name] for name in _LIKE_WEIGHTS if name in state}
        if any(average.shape != weight.shape for average in averages.values()):
            raise ValueError("its optimiser's state belongs to another network")
        # Fused Adam reads them in the order of the weights' memory (--channels-last).
        state.update({name: torch.empty_like(weight).copy_(a) for name, a in averages.items()})
    counts = (learner.steps, learner.updates, learner.refused, learner.refused_in_a_row)
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("its steps and updates are not counts")
    torch.set_rng_state(payload["rng"]["torch"].cpu())


def _settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    moving = ("params", "lr")  # the learning rate is annealed
    groups = optimizer.param_groups
    return [{name: group[name] for name in group if name not in moving} for group in groups]


@dataclass(frozen=True)
class SavedAgent:
    """A saved network, and the run that it comes from."""

    network: Network = field(repr=False)
    options: RunOptions
    payload: dict[str, Any] = field(repr=False)
    path: Path  # the file with the weights
    warnings: tuple[str, ...] = ()  # newer checkpoints that could not be used

    @property
    def step(self) -> int:
        """The agent steps of its training."""
        return self.payload["step"]

    @property
    def seed(self) -> int | None:
        """The seed of its training; None if the file does not store it, as with TorchBeast's."""
        return self.options.seed if "seed" in self.payload["flags"] else None

    @property
    def run(self) -> Path:
        """The run folder, or the file's folder if it is elsewhere."""
        return run_of(self.path)

    @property
    def games_folder(self) -> Path:
        """The folder for test games and clips: the run's or export's folder.

        For a checkpoint elsewhere, a folder named after it, so that the games of several
        checkpoints in one folder stay apart. A folder with a `model.tar` counts as a run, as in
        TorchBeast.
        """
        is_run = self.path.name == "model.tar" or (self.run / "meta.json").exists()
        if is_run or is_export(self.run) or not self.path.is_file():
            return self.run
        return self.path.with_suffix("")


def open_agent(
    path: Path,
    device: torch.device | str = "cpu",
    env: str | None = None,
    core: str | None = None,
) -> SavedAgent:
    """Load an agent onto `device`, in evaluation mode.

    Args:
        path: a run folder (the newest usable checkpoint), a checkpoint, a folder that
            `records.exports` wrote, or TorchBeast's `model.tar` or its folder.
        device: device of the network.
        env: the game, if the file does not name it or the game is in a user's module.
        core: a memory in a user's module (`my_module:name`), which is then imported.

    Raises:
        CheckpointError: anything else at `path`; one line.
        ValueError: the memory cannot be imported; one line.
    """
    import_core(core)
    found = _find(resolved_run(path), device, env)
    with fitting(found.path):
        options = _options_of(found)
        check_known_core(options.core, found.path)
        try:
            network = _network(options, found.payload).to(device)
        except ValueError as error:
            if ":" not in options.core:
                raise
            raise CheckpointError(
                f"{found.path} does not fit the present {options.core}: {error}; restore the "
                "module with which it was trained"
            ) from error
        _step_of(found)
    check_module(options, env, found.path)
    return SavedAgent(network.eval(), options, found.payload, found.path, found.warnings)


def has_finished(saved: SavedAgent, asked: RunOptions) -> bool:
    """Return whether nothing is left to train with the options `asked`."""
    return saved.step >= asked.learner.total_steps


def check_unfinished(saved: SavedAgent, asked: RunOptions) -> None:
    """Raise `ValueError`, one line, if nothing is left to train with the options `asked`."""
    if has_finished(saved, asked):
        more = ", or add a larger --total-steps" if asked.learner.has_constant_rate else ""
        raise ValueError(
            f"{saved.run} has finished its {saved.step:,} agent steps; evaluate it with "
            f"{typed_command('evaluate', saved.run, *module_arguments(saved.options))}{more}"
        )


def as_resumed(saved: SavedAgent, asked: RunOptions) -> RunOptions:
    """Return the options of the resumed run; raise a `ValueError` if `asked` contradicts them.

    By now, `--init-from runs/latest` may mean the run itself: it keeps its original value.
    """
    run, before = saved.run.resolve(), saved.options  # the run may have been moved since
    if asked.init_from == run:
        asked = replace(asked, init_from=before.init_from)
    check_kept(changed_flags(before, asked))
    check_stays(run, before, asked, f"start a new run with --init-from {run}")
    return asked


def with_full_path(options: RunOptions) -> RunOptions:
    """Return options with the full path of `init_from`, so that `latest` keeps its meaning."""
    if options.init_from is None:
        return options
    return replace(options, init_from=resolved_run(options.init_from).resolve())


def take_weights(network: Network, options: RunOptions) -> str | None:
    """Give a new run's network the weights of `options.init_from`; return a line about them.

    Without that option, do nothing and return None. Nothing else of the other run is used: neither
    its optimiser nor the modules of its game and memory.

    Raises:
        CheckpointError: no agent there, or an agent with another network; one line.
    """
    if options.init_from is None:
        return None
    found = _find(options.init_from, "cpu", options.env)
    with fitting(found.path):
        its_own, given = _options_of(found), found.payload["model_state_dict"]
        step = _step_of(found)
        odd = _other_network(its_own, options) or first_misfit(network, given)
    its_agent = f"{its_own.core} on {its_own.env}"
    if odd is not None:
        raise CheckpointError(
            f"--init-from {found.path} ({its_agent}): {odd}. Its weights fit the same core, stem "
            "and sizes, on games with as many actions and frames of the same shape"
        )
    network.load_state_dict(given)
    return f"weights of {its_agent} after {step:,} agent steps: {found.path}"


def _step_of(found: FoundCheckpoint) -> int:
    """Return a file's agent steps; raise `LookupError` or `ValueError` if it stores no count."""
    step = found.payload["step"]
    if type(step) is not int or step < 0:
        raise ValueError("its step is not a count")
    return step


def _other_network(saved: RunOptions, asked: RunOptions) -> str | None:
    """Return the first option that would make equal weights compute something else, or None."""
    if saved.core != asked.core:  # the saved core may not be imported
        return f"its core is {saved.core}, not {asked.core}"
    if "auto" in (saved.stem, asked.stem):  # the shapes decide
        saved = replace(saved, stem=asked.stem)
    theirs, wanted = _of_network(saved), _of_network(asked)
    odd = next((name for name in wanted if theirs[name] != wanted[name]), None)
    return odd and f"its {flag(odd)} is {theirs[odd]}, not {wanted[odd]}"


def _of_network(options: RunOptions) -> dict[str, Any]:
    core = asdict(core_config(options.core, **dict(options.core_options())))
    names = ("stem", "head_norm", "value_scale", "reset_inputs")
    own = {name: getattr(options, name) for name in names}
    own["normalize_values"] = options.learner.normalize_values
    return {f"core_{name}": value for name, value in core.items()} | own


def check_module(options: RunOptions, env: str | None, path: Path) -> None:
    """Raise unless `env` names the game, too, if it is in a module (`my_module:MyGame-v0`).

    Creating the game imports the module, and a file must not run code. Raises `CheckpointError`.
    """
    if ":" not in options.env or env == options.env:
        return
    if env is None:
        raise CheckpointError(
            f"{path} plays {options.env!r}, whose module would be imported: if you trust it, "
            f"add --env {shlex.quote(options.env)}"
        )
    raise CheckpointError(
        f"{path} plays {options.env!r}, not {env!r}: if you trust its module, add --env "
        f"{shlex.quote(options.env)} instead"
    )


def check_known_core(core: str, path: Path) -> None:
    """Raise a one-line `CheckpointError` for a file's core that is unknown or not yet imported."""
    try:
        core_kind(core)
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be loaded: {error}") from error


def module_arguments(options: RunOptions) -> list[str]:
    """Return the arguments with which a command imports a run's user modules; usually none."""
    game = ["--env", options.env] if ":" in options.env else []
    return [*game, *core_arguments(options.core)]


@dataclass(frozen=True, kw_only=True)
class Named:
    """Game and memory that the user of a command names, to allow importing their modules."""

    env: str | None = None
    """Game (default: as stored in the file). Required for files without it, such as TorchBeast's,
    and for a game in your own module (my_module:MyGame-v0), which is then imported."""
    core: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Memory in your own module (my_module:name), which is then imported. Required for agents with
    such a memory; give it once for each."""

    def import_cores(self) -> None:
        """Import the named memories. Raises a one-line `ValueError` if one cannot be imported."""
        for core in self.core:
            import_core(core)

    def agents(self, paths: Sequence[Path], device: torch.device | str) -> list[SavedAgent]:
        """Load agents onto `device`.

        Raises a one-line `ValueError`: see `open_agent`, `check_kernels` and `check`.
        """
        self.import_cores()
        found = [open_agent(path, device, self.env) for path in paths]
        for agent in found:
            check_kernels(agent.network.core, torch.device(device))
        self.check({agent.path: agent.options for agent in found})
        return found

    def check(self, agents: Mapping[Path, RunOptions]) -> None:
        """Raise a one-line `CheckpointError` for a wrong game, or a memory that no agent has."""
        for path, options in agents.items():
            if self.env is not None and resolve(self.env)[:2] != resolve(options.env)[:2]:
                raise CheckpointError(
                    f"{path} was trained on {options.env}, not on --env {self.env}: an agent "
                    "plays the game that it was trained on; leave --env out"
                )
        cores = dict.fromkeys(options.core for options in agents.values())
        for core in self.core:
            if core not in cores:
                raise CheckpointError(
                    f"{', '.join(map(str, agents))}: the memory is {', '.join(cores)}, not --core "
                    f"{core}: an agent keeps its memory; leave --core out"
                )


def _options_of(found: FoundCheckpoint) -> RunOptions:
    flags = found.payload["flags"]
    if task := flags.get("task_name"):
        raise CheckpointError(f"{found.path} belongs to a run of {task}, not to an agent")
    return RunOptions.from_dict(flags)


def _network(options: RunOptions, payload: dict[str, Any]) -> Network:
    """Return the network that a file describes; `ValueError` if the weights are not for it."""
    shape = tuple(payload["network"]["frame_shape"])
    actions = payload["network"]["num_actions"]
    if not all(type(size) is int and size > 0 for size in (*shape, actions)):
        raise ValueError(f"frame_shape {shape} and num_actions {actions} must be whole numbers")
    config = options.network(shape, actions)
    return built_for(payload["model_state_dict"], lambda: Network(config))


def _find(path: Path, device: torch.device | str, env: str | None) -> FoundCheckpoint:
    if not path.exists():
        raise CheckpointError(f"no checkpoint at {path}: {runs_near(path)}")
    run = run_of(path)
    check_contained(run)
    path = run if path.is_dir() else path  # the folder `checkpoints` of a run means the run
    if is_export(path):
        return FoundCheckpoint(exported_weights(path), AGENT_EXPORT.read(path, device), ())
    if path.is_dir():
        foreign = path / "model.tar"
        if (path / "checkpoints").exists() or not foreign.exists():
            return CheckpointFolder(path).latest(device)
        path = foreign  # TorchBeast's folder; ours hold more files
    payload = read_plain(path, device)
    if not is_torchbeast(payload):
        return FoundCheckpoint(path, load_checkpoint(path, device), ())
    try:
        return FoundCheckpoint(path, translated(payload, env), ())
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be imported from TorchBeast: {error}") from error
