"""`fastweights COMMAND ...`: each command of launch/ as a subcommand."""

import ast
import sys
from collections.abc import Sequence
from importlib.resources import files

from fastweights.host import exit_code, run_command, unknown_name

HELP = """usage: fastweights COMMAND [OPTIONS]

{commands}

`fastweights COMMAND --help` explains a command's options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, this process's own arguments by default, and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    known = commands()
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, known))
        lines = (f"  {name:{width}}  {purpose}" for name, purpose in known.items())
        return exit_code(print, HELP.format(commands="\n".join(lines)))
    name = arguments[0].replace("-", "_")
    if name not in known:
        print(f"error: {unknown_name('command', arguments[0], known)}", file=sys.stderr)
        return 2
    return run_command(name, arguments[1:])


def commands() -> dict[str, str]:
    """The commands' names, and the first line of what each says of itself. Imports none of them."""
    found = {}
    for file in files("fastweights.launch").iterdir():
        if file.name.endswith(".py") and not file.name.startswith("_"):
            purpose = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            found[file.name.removesuffix(".py")] = purpose.splitlines()[0]
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
