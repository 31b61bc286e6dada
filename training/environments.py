"""The environments of a run's options."""

from dataclasses import asdict
from typing import Any, NamedTuple

import torch

from fastweights import envs
from fastweights.envs import Environments, Protocol, protocol_named, resolve
from fastweights.training.options import RunOptions


class Rules(NamedTuple):
    """Protocol and options of an environment, as `envs.make` takes them."""

    protocol: str
    options: dict[str, Any]  # for Atari, fields of `Protocol` to change

    def resolved(self, env: str) -> Protocol | None:
        """Return the complete protocol; None if `env` is not an Atari game."""
        if resolve(env).rom is None:
            return None
        return protocol_named(self.protocol).override(self.options)

    def frames_per_step(self, env: str) -> int:
        """Return the emulator frames per agent step; 1 if `env` is not an Atari game."""
        protocol = self.resolved(env)
        return protocol.frame_skip if protocol else 1

    def complete(self, env: str) -> "Rules":
        """Return these rules with all fields of the protocol if `env` is an Atari game."""
        resolved = self.resolved(env)
        return self._replace(options=asdict(resolved)) if resolved else self


def make_environments(
    options: RunOptions,
    num_envs: int,
    seed: int,
    *,
    rules: Rules | None = None,
    render: bool = False,
    num_threads: int | None = None,
    to_learn: bool = False,
) -> Environments:
    """Return the environments of a run's options; `rules` and `num_threads` override the run's.

    With `to_learn`, they also return what only the learner needs.

    If the number of threads is 0, emulators use torch's: ale-py would use all of the machine.
    """
    rules = rules or trained_rules(options)
    asked = options.num_threads if num_threads is None else num_threads
    return envs.make(
        options.env,
        num_envs,
        seed=seed,
        protocol=rules.protocol,
        options=rules.options,
        render=render,
        num_threads=asked or min(num_envs, torch.get_num_threads()),
        tell_cut_off=to_learn and options.bootstrap_truncated,
    )


def trained_rules(options: RunOptions) -> Rules:
    """Return the rules of a run's training games."""
    return Rules(options.protocol, options.environment_options())
