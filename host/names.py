"""The message for an unknown name, with the closest known name."""

import difflib
from collections.abc import Collection, Iterable

_CUTOFF = 0.7  # of difflib's ratio: `quik` is near `quick`, `gpu` is not near `cpu`


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `unknown core 'rnd'; known: lstm, rdn; did you mean rdn?`"""
    known = list(known)
    return f"unknown {kind} {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}"


def one_of(kind: str, name: str, known: Collection[str]) -> str:
    """Return `name`; raise a one-line `ValueError` if it is not one of the known names."""
    if name not in known:
        raise ValueError(unknown_name(kind, name, known))
    return name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean rdn?`, or nothing if no known name is close."""
    near = nearest_name(name, known)
    return f"; did you mean {near}?" if near else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` probably means; None if none is close enough.

    Tolerates one or two wrong, missing or swapped letters, and differences in case and hyphens.
    """
    plain = {_plain(one): one for one in known}
    wanted = _plain(name)
    swapped = (one for one in plain if sorted(one) == sorted(wanted))
    close = difflib.get_close_matches(wanted, plain, n=1, cutoff=_CUTOFF)
    found = next(iter(close), None) or next(swapped, None)
    return plain[found] if found is not None else None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c not in "-_ ")
