"""The rules of test games: a protocol's, except for what belongs to the agent or to its task."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from fastweights.envs import HALF_AN_HOUR, PROTOCOLS, protocol_named
from fastweights.host import unknown_name
from fastweights.training import Rules, RunOptions, trained_rules

# Observations and actions: the same under every protocol.
THE_AGENTS_OWN = ("frame_skip", "max_pool", "frame_stack", "full_action_set")

# Options that change the task: also as in training, and named beside the protocol.
THE_TASKS_OWN = ("flicker",)


def rules_for_testing(
    options: RunOptions,
    protocol: str,
    max_frames: int | None = None,
    env_options: tuple[str, ...] = (),
) -> Rules:
    """Return the rules of test games for an agent trained with `options`.

    On Atari, games are cut off as `longest_test` says. Observations and actions stay as in
    training: an agent with fewer actions than the protocol never uses the others.

    Args:
        options: the training options.
        protocol: name of a protocol, or `trained`.
        max_frames: as for `longest_test`.
        env_options: `name=value` pairs that override those of training, or the protocol's rules.

    Raises:
        ValueError: an unknown protocol, or one for other environments; an option that the
            environment does not have, or that is fixed by the agent.
    """
    if protocol not in (known := (*PROTOCOLS, "trained")):
        raise ValueError(unknown_name("protocol", protocol, known))
    changes = replace(options, env_options=env_options).environment_options()
    trained = trained_rules(options)
    learned = trained.resolved(options.env)
    if learned is None:
        rules = trained if protocol == "trained" else trained._replace(protocol=protocol)
        return rules._replace(options=rules.options | changes)
    _check_changes(changes)
    changes |= {"max_frames": longest_test(options, protocol, max_frames)}
    if protocol == "trained":
        return trained._replace(options=trained.options | changes)
    own = {name: getattr(learned, name) for name in (*THE_AGENTS_OWN, *THE_TASKS_OWN)}
    return Rules(protocol, own | changes)


def _check_changes(changes: Mapping[str, Any]) -> None:
    for name in changes:
        if name in THE_AGENTS_OWN:
            raise ValueError(
                f"--env-options {name}: an agent must play with the observations and actions that "
                "it was trained with; train another agent with this option"
            )
    if "max_frames" in changes:
        raise ValueError("--env-options max_frames: use --max-frames to set the limit")


def longest_test(options: RunOptions, protocol: str, max_frames: int | None = None) -> int | None:
    """Return the time limit of a test game in frames; None for no limit.

    `max_frames`: the requested limit, 0 for none. None selects the protocol's limit (`trained`:
    that of training), or half an hour if there is none.

    Raises:
        ValueError: an unknown protocol.
    """
    if max_frames is not None:
        return max_frames or None
    if (learned := trained_rules(options).resolved(options.env)) is None:
        return HALF_AN_HOUR
    own = learned if protocol == "trained" else protocol_named(protocol)
    return own.max_frames or HALF_AN_HOUR


def changed_rules(protocol: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules in which games differ from the named protocol.

    Observations, actions and the time limit are left out: the first two belong to the agent, and
    the limit is in `Evaluation.max_frames`. Empty for a name that is not a protocol.
    """
    known = PROTOCOLS.get(protocol)
    usual = asdict(known) if known else {}
    aside = (*THE_AGENTS_OWN, "max_frames")
    return {
        name: rules[name]
        for name, value in usual.items()
        if name not in aside and rules.get(name, value) != value
    }


def in_file_name(name: str, value: object) -> str:
    """Return a change of rules, such as `noop-max-0`, in characters allowed in any file name.

    A text with other characters, capitals among them, ends with digits of its hash, so that
    different texts have different names.
    """
    said = re.sub(r"[^\w.-]+|_", "-", f"{name}-{value}").lower()
    if isinstance(value, str) and re.search(r"[^a-z0-9.-]", value):
        said += f"-{hashlib.sha256(value.encode()).hexdigest()[:6]}"
    return said
