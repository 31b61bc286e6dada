"""Environments: Atari, small memory games and any Gymnasium environment. Imports no torch."""

from collections.abc import Mapping

import gymnasium

from fastweights.envs.adapter import GymnasiumEnvironments, make_gymnasium
from fastweights.envs.atari import AtariEnvironments
from fastweights.envs.interface import (
    BrokenEnvironment,
    CutOff,
    Environments,
    Episode,
    Life,
    TimeStep,
)
from fastweights.envs.naming import OWN_GAMES, Name, names, resolve, shows_last_action
from fastweights.envs.pictures import NoPictures
from fastweights.envs.protocols import HALF_AN_HOUR, PROTOCOLS, Protocol, protocol_named

__all__ = [
    "HALF_AN_HOUR",
    "PROTOCOLS",
    "AtariEnvironments",
    "BrokenEnvironment",
    "CutOff",
    "Environments",
    "Episode",
    "GymnasiumEnvironments",
    "Life",
    "Name",
    "NoPictures",
    "Protocol",
    "TimeStep",
    "make",
    "names",
    "protocol_named",
    "resolve",
    "shows_last_action",
]

_DEFAULT_PROTOCOL = "full-game"

gymnasium.register(OWN_GAMES["Catch"], vector_entry_point="fastweights.envs.catch:Catch")
gymnasium.register(OWN_GAMES["TMaze"], vector_entry_point="fastweights.envs.t_maze:TMaze")


def make(
    name: str,
    num_envs: int,
    *,
    seed: int = 0,
    protocol: str = _DEFAULT_PROTOCOL,
    options: Mapping[str, object] | None = None,
    render: bool = False,
    num_threads: int = 0,
    tell_cut_off: bool = False,
) -> Environments:
    """Make a batch of environments.

    Args:
        name: an Atari game (`Qbert`, `ALE/Qbert-v5`, `QbertNoFrameskip-v4`, `qbert`), `Catch`,
            `TMaze`, or a Gymnasium id, optionally with its module (`my_module:MyGame-v0`).
        num_envs: number of environments, the batch axis B.
        seed: environment `i` gets `seed + i`. Equal seeds and actions give equal games.
        protocol: rules of play and scoring, a key of `PROTOCOLS`. For Atari only.
        options: for Atari, fields of `Protocol` to change; otherwise keyword arguments of the
            environment's constructor, such as `{"corridor": 20}` for `TMaze`.
        render: also draw pictures for `Environments.render`.
        num_threads: threads for Atari emulation; 0: one per CPU core. Other environments run in
            the caller's thread.
        tell_cut_off: fill `TimeStep.cut_off` with the next observation of each episode that a time
            limit cut off.

    Raises:
        ValueError: an unknown name, protocol or option, an argument out of range, or an unsupported
            observation or action space.
    """
    which, options = resolve(name), options or {}
    rules = protocol_named(protocol)
    if num_threads < 0:
        raise ValueError(f"num_threads must be at least 0, got {num_threads}")
    if which.rom is not None:
        rules = rules.override(options)
        return AtariEnvironments(
            which.rom,
            num_envs,
            seed=seed,
            protocol=rules,
            render=render,
            num_threads=num_threads,
            tell_cut_off=tell_cut_off,
        )
    if protocol != _DEFAULT_PROTOCOL:
        raise ValueError(f"protocol {protocol!r} is for Atari games only, not for {name}")
    return make_gymnasium(
        which.gymnasium_id,
        num_envs,
        display=which.display,
        seed=seed,
        options=options,
        render=render,
        tell_cut_off=tell_cut_off,
    )
