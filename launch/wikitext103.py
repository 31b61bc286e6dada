"""Train a memory as a language model; evaluate it, generate text, export it.

For example: `python launch/wikitext103.py --preset small --core rdn`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

from collections.abc import Sequence

from fastweights.host import one_line_errors
from fastweights.launch.cli.language_training import train
from fastweights.launch.cli.language_use import evaluate, export, write

USES = {"evaluate": evaluate, "generate": write, "export": export}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in USES:
        return USES[words[0]](words[1:])
    return train(words)
