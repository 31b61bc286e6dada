"""Train an agent with fast-weight memory on Atari or another environment.

For example: `python launch/atari.py --core rdn --env Qbert`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))


from fastweights import envs
from fastweights.evaluation import core_table
from fastweights.experiments import close_agent, run_agent
from fastweights.host import Console, one_line_errors, user_input
from fastweights.launch.cli.atari_options import CommandLine, parse, peek
from fastweights.launch.cli.resuming import saved_run
from fastweights.launch.cli.torchbeast_flags import translate
from fastweights.training import (
    as_resumed,
    check_cluster,
    check_unfinished,
    has_finished,
    preset,
    without_cluster,
)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    arguments, ignored = translate(sys.argv[1:] if arguments is None else arguments)
    with user_input():
        known = peek(arguments)
        saved = saved_run(known)
        command = parse(arguments, without_cluster(saved.options) if saved else None)
        if saved:
            check_cluster(saved, command.run)
            as_resumed(saved, command.run)  # checked before anything is printed
            if known.preset is not None:  # --auto-resume would not check the preset otherwise
                as_resumed(saved, parse(arguments).run)
            if command.run.auto_resume and has_finished(saved, command.run):
                close_agent(command.run, saved)
                return 0
            check_unfinished(saved, command.run)
    if command.list_cores or command.list_envs:
        return _show_lists(command)
    for flag in ignored:
        print(f"note: {flag} has no equivalent here and is ignored", file=sys.stderr)
    usual = None if saved else preset(command.preset, command.run.core, command.run.env)
    return run_agent(command.run, saved, usual)


def _show_lists(command: CommandLine) -> int:
    console = Console()
    if command.list_cores:
        console.print(core_table(console.width))
    if command.list_envs:
        console.print(", ".join(envs.names()))
    return 0
