"""Train a memory on a formal language: parity, brackets, a stack, word problems of groups."""

import sys
from pathlib import Path

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

from fastweights.launch.cli.language_command import LanguageCommand
from fastweights.launch.cli.sequence_command import Family, command_of
from fastweights.tasks import LANGUAGES

main = command_of(
    Family(
        tasks=LANGUAGES,
        description=__doc__,
        small="--task parity --core rdn      the best published configuration",
        example="--task s3 --core lstm --sizes 2 30",
        table=1,
        kind=LanguageCommand,
    )
)
