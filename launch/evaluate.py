"""Play test games with trained agents: scores, all episodes and a clip.

For example: `python launch/evaluate.py RUN...`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

import tyro

from fastweights.evaluation import (
    ActionMode,
    ClipFormat,
    ClipPlan,
    Evaluation,
    GamePlan,
    check_plan,
    check_plays,
    comparison_tables,
    play_agent,
)
from fastweights.host import (
    SECONDS,
    Console,
    check_range,
    choose_device,
    compute_exactly,
    expanded,
    flags,
    one_line_errors,
    typed_command,
    use_threads,
    user_input,
)
from fastweights.launch.cli.parser import changed_fields, typed_options
from fastweights.launch.export import export_safetensors
from fastweights.records import AGENT_EXPORT, runs_near
from fastweights.training import Named


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(GamePlan, Named):
    """Play test games with trained agents; report scores, their spread and all raw episodes.

    Returns are undiscounted and unclipped. Writes RUN/evaluations/*.json and *.csv, and a clip.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders (the newest checkpoint), checkpoints, exported folders or TorchBeast's model.tar.
    """
    action_mode: Literal["argmax", "sampled", "both"] = "argmax"
    """Action selection: argmax (the most probable action, as published; an agent may get stuck
    until its game is cut off, see --max-frames), sampled (drawn from the policy), or both."""
    clip: bool = True
    """Also record a clip of the first game."""
    clip_seconds: float = 60.0
    """Maximum length of the clip in seconds, at the game's normal speed."""
    clip_format: ClipFormat = "mp4"
    """Format of the clip; without ffmpeg, always a GIF."""
    export: Path | None = None
    """Instead of playing, export the agent to this folder: safetensors, config, model card."""
    device: str = "auto"
    """Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps."""

    @property
    def action_modes(self) -> tuple[ActionMode, ...]:
        """The action modes to evaluate: one, or both."""
        return ("argmax", "sampled") if self.action_mode == "both" else (self.action_mode,)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = typed_options(EvaluateOptions, arguments, prog=typed_command("evaluate"))
    with user_input():
        _check(options)
        use_threads(options.num_threads)
        compute_exactly()
        device = choose_device(options.device)
        agents = options.agents(options.runs, device)
        for agent in agents:
            check_plays(agent.network, agent.options, options)
    for warning in (warning for agent in agents for warning in agent.warnings):
        print(f"warning: {warning}", file=sys.stderr)
    if options.export:
        export_safetensors(agents[0], expanded(options.export))
        return 0
    played: dict[str, dict[str, Evaluation]] = {}
    try:
        for agent in agents:
            clip = ClipPlan(options.clip_seconds, options.clip_format) if options.clip else None
            play_agent(agent, options, options.action_modes, device, played, clip)
    finally:  # show the games already played, even if a later one failed
        for evaluations in played.values():
            for table in comparison_tables(evaluations):
                Console().print(table)
    return 0


def _check(options: EvaluateOptions) -> None:
    check_plan(options)
    if not options.runs:
        raise ValueError(f"give at least one run folder or checkpoint; {runs_near(Path())}")
    if options.export:
        AGENT_EXPORT.check_folder(expanded(options.export), "--export ")
        if len(options.runs) != 1:
            raise ValueError(f"--export takes one run or checkpoint, not {len(options.runs)}")
        used = ("runs", "export", "core", "env", "device", "num_threads")
        if unused := [name for name in changed_fields(options) if name not in used]:
            raise ValueError(f"--export plays no games: leave out {flags(unused)}")
    check_range("clip_seconds", options.clip_seconds, SECONDS)
    of_clips = [name for name in changed_fields(options) if name in ("clip_seconds", "clip_format")]
    if of_clips and not options.clip:
        raise ValueError(f"--no-clip records no clip: leave out {flags(of_clips)}")
