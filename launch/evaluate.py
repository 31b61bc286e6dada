"""`python launch/evaluate.py RUN`: test episodes of a trained agent, and a clip of one."""

import sys
from collections.abc import Sequence

import tyro
from rich.console import Console

from launch.devices import choose_device, use_threads
from launch.failures import one_line_errors, user_input
from launch.play import EvaluateOptions, check, make_clip, play
from launch.saved_agent import open_agent
from launch.tables import evaluation_table


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = tyro.cli(EvaluateOptions, args=arguments, prog="python launch/evaluate.py")
    with user_input():
        use_threads(options.num_threads)
        check(options)
        agent = open_agent(options.run, choose_device(options.device))
    for warning in agent.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    evaluation, path = play(agent.network, agent.options, agent.step, agent.run, options)
    console = Console()
    console.print(evaluation_table({f"{agent.step:,} agent steps": evaluation}))
    console.print(f"episodes: {path}", soft_wrap=True)
    if options.clip and (clip := make_clip(agent, options)):
        console.print(f"clip: {clip}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
