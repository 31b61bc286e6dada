"""Option names as flags, and the comparison of a resumed run's options."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fastweights.host.errors import UserError


def flag(name: str) -> str:
    """Return `total_steps` as `--total-steps`."""
    return f"--{name.replace('_', '-')}"


def flags(names: Iterable[str]) -> str:
    """Return `--core, --total-steps`."""
    return ", ".join(map(flag, names))


def flags_in(words: Iterable[str]) -> list[str]:
    """Return the flags of a command line, without values and with TorchBeast's underscores as -."""
    spelled = (word.partition("=")[0].replace("_", "-") for word in words)
    return [word for word in spelled if word.startswith("--")]


def given(names: Iterable[str], words: Iterable[str]) -> set[str]:
    """Return the options that the command line `words` sets, switched off with `--no-` included."""
    seen = flags_in(words)
    return {name for name in names if flag(name) in seen or flag(f"no_{name}") in seen}


def check_given_once(names: Iterable[str], words: Iterable[str]) -> None:
    """Raise a one-line `UserError` if the command line `words` sets one of these options twice."""
    counts = Counter(flags_in(words))
    for option in map(flag, names):
        if counts[option] > 1:
            raise UserError(
                f"{option} is given {counts[option]} times: list all values after one {option}"
            )


def contradictions(
    stored: Mapping[str, Any], asked: Mapping[str, Any], free: Collection[str]
) -> list[str]:
    """Return the plain options that differ from the stored ones: `--core lstm (was rdn)`.

    `free`: names of options that may differ.
    """
    return [
        f"{flag(name)} {value} (was {stored.get(name)})"
        for name, value in asked.items()
        if name not in free and (name not in stored or stored[name] != value)
    ]


def check_kept(contradicting: Collection[str]) -> None:
    """Raise a one-line `ValueError` if a resumed run is asked to compute something else."""
    if contradicting:
        raise ValueError(
            "a resumed run must compute the same as before, but these options contradict --resume: "
            f"{', '.join(contradicting)}; leave them out, or start a new run"
        )
