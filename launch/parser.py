"""The command line of scripts that have a handful of options; training's is `command_line.py`."""

import argparse
from typing import NoReturn

from launch.failures import UserError


class Parser(argparse.ArgumentParser):
    """`--help` shows the script's own docstring; what cannot be parsed is a `UserError`."""

    def __init__(self, description: str | None) -> None:
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ')} (--help says more)")
