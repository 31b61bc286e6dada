"""TorchBeast's flags on this command line: with the same name, renamed, or without equivalent."""

from collections.abc import Sequence

from fastweights.host import UserError, typed_command

# Flags that have another name here (flags with the same name need no entry).
RENAMED = {
    "num_layers": "core-layers",
    "hidden_size": "core-width",
    "num_head": "core-heads",
    "dim_ff": "core-feedforward",
    "max_learner_queue_size": "queue-size",
}
# Flags without a value, and their equivalents.
SWITCHES = {"disable_cuda": ("--device", "cpu"), "use_lstm": ("--core", "lstm")}
# Flags for mechanisms that do not exist here; each takes a value.
WITHOUT_MEANING = (
    "mode",
    "num_buffers",
    "num_learner_threads",
    "num_inference_threads",
    "pipes_basename",
    "queue_timeout",
)


def translate(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Rewrite TorchBeast's flags; return the new arguments and the ignored flags.

    Raises a one-line `UserError` for a `--mode` that does not train, and for a missing value.
    """
    rewritten, ignored = [], []
    waiting = iter(_split_equals(arguments))
    for argument in waiting:
        name = argument.removeprefix("--").replace("-", "_") if argument.startswith("--") else ""
        if name in SWITCHES:
            rewritten.extend(SWITCHES[name])
        elif name in WITHOUT_MEANING:
            value = next(waiting, None)
            if name == "mode" and value != "train":
                given = "--mode" if value is None else f"--mode {value}"
                raise UserError(
                    f"{given}: this command only trains; {typed_command('evaluate')} RUN plays "
                    f"test games, {typed_command('watch')} RUN films one"
                )
            if value is None or value.startswith("--"):
                raise UserError(f"--{name} needs a value; or leave it out: it has no effect here")
            ignored.append(f"--{name}")
        else:
            rewritten.append(f"--{RENAMED[name]}" if name in RENAMED else argument)
    return rewritten, ignored


def _split_equals(arguments: Sequence[str]) -> list[str]:
    """Split `--flag=value` into two arguments; leave `name=value` values as they are."""
    parts: list[str] = []
    for argument in arguments:
        if argument.startswith("--") and "=" in argument:
            parts.extend(argument.split("=", 1))
        else:
            parts.append(argument)
    return parts
