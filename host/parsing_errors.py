"""Error messages of tyro's command lines, in one line."""

import re

from fastweights.host.names import did_you_mean


def in_one_line(box: str) -> str:
    """Return the error in one of tyro's boxes as one line, with the flags that it suggests.

    ╭─ Unrecognized options ─────────╮
    │ Unrecognized options: --corex  │
    │ ────────────────────────────── │
    │ Perhaps you meant:             │     ->  Unrecognized options: --corex: did you mean
    │     --core STR                 │         --core STR?
    │         Memory; ...            │
    ╰────────────────────────────────╯
    """
    lines = [line.strip().strip("│").strip() for line in _COLOURS.sub("", box).splitlines()]
    parts: list[list[str]] = [[]]
    for line in lines:
        if line and line[0] in "╭╰":
            continue
        if line and set(line) <= {"─", "-"}:
            parts.append([])
        else:
            parts[-1].append(line)
    wrong, *others = parts if "╭" in box else parts[1:] or parts
    message = " ".join(wrong).strip().rstrip(".")
    if choice := _INVALID_CHOICE.fullmatch(message):
        return _invalid_choice(**choice.groupdict())
    below = others[0] if others else []
    shown = [line for line in below if line.startswith("--")]
    if shown and any(line.startswith("Perhaps you meant") for line in below):
        meant = " or ".join(shown[:3]).replace("{None}|", "")
        return f"{message}: did you mean {meant}?"
    # "Error parsing --num-envs: ..." is followed by "--num-envs INT" and its help.
    named, colon, reason = message.removeprefix("Error parsing ").partition(": ")
    if message.startswith("Error parsing ") and not named.startswith("-"):
        return reason  # from the checks of a nested dataclass, such as "run.learner"
    if not (shown and shown[0].startswith(named)):
        return message
    *_, reason = re.split(r" - <class '\w+'>: ", reason)  # optional values could also be None
    return f"{shown[0].replace('{None}|', '')}{colon}{reason}"


def _invalid_choice(value: str, flag: str, known: str) -> str:
    allowed = sorted(name for name in re.findall(r"'([^']*)'", known) if name != "None")
    return f"{flag} {value!r} is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}"


_INVALID_CHOICE = re.compile(
    r"invalid choice '(?P<value>.*)' for argument '(?P<flag>.*)'\. "
    r"Expected one of \((?P<known>.*)\)"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
