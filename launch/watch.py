"""Film one episode of a trained agent and show its memory at work.

For example: `python launch/watch.py RUN`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

import tyro

from fastweights.evaluation import (
    ActionMode,
    GamePlan,
    check_actions,
    clip_path,
    environments_to_film,
    longest_test,
    write_clip,
)
from fastweights.evaluation.films import (
    episode,
    film_title,
    filmed,
    show_pictures,
    until_stopped,
)
from fastweights.host import (
    SECONDS,
    Console,
    Interrupted,
    StopRequests,
    check_range,
    choose_device,
    compute_exactly,
    expanded,
    one_line_errors,
    typed_command,
    use_threads,
    user_input,
)
from fastweights.launch.cli.parser import typed_options
from fastweights.training import TEST_SEEDS, Named


@dataclass(frozen=True, kw_only=True)
class WatchOptions(Named):
    """Film one episode: the game, the network's input and decisions, and its memory.

    Writes an MP4 into RUN/clips, or opens a window with --live.
    """

    run: Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
    """Run folder (the newest checkpoint) or checkpoint file."""
    out: Path | None = None
    """Output file, .mp4 or .gif (default: one per game in RUN/clips)."""
    live: bool = False
    """Show the film in a window instead of writing it, at the game's normal speed."""
    frames: int | None = None
    """Maximum number of film frames, one per agent step (default: the whole episode, as far as
    evaluate would play it)."""
    seconds: float | None = None
    """Maximum length of the film in seconds (default: the whole episode)."""
    protocol: str = "trained"
    """Game rules: trained (as in training), full-game, published, machado or noop30."""
    env_options: tuple[str, ...] = ()
    """Environment options to override, as name=value pairs such as corridor=20."""
    action_mode: ActionMode = "argmax"
    """Action selection: argmax (the most probable action) or sampled (drawn from the policy)."""
    seed: int = TEST_SEEDS.start
    """Seed of the game; seed s + i gives game i of `evaluate --seed s`."""
    device: str = "auto"
    """Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per CPU core."""

    @property
    def game(self) -> GamePlan:
        """The game to film."""
        return GamePlan(
            protocol=self.protocol,
            env_options=self.env_options,
            seed=self.seed,
            num_threads=self.num_threads,
        )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = typed_options(WatchOptions, arguments, prog=typed_command("watch"))
    with user_input():
        use_threads(options.num_threads)
        compute_exactly()
        check(options)
        device = choose_device(options.device)
        (agent,) = options.agents([options.run], device)
        environments = environments_to_film(agent, options.game)
        check_actions(agent.network, environments)
    for warning in agent.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    fps = environments.steps_per_second
    longest = longest_test(agent.options, options.protocol)
    played = episode(agent, environments, options.action_mode, options.seed, device)
    played = islice(played, longest and max(1, longest // environments.frames_per_step))
    with StopRequests() as stop:
        pictures = until_stopped(filmed(agent, environments, played, _limit(options, fps)), stop)
        if options.live:
            show_pictures(pictures, film_title(agent), fps)
        else:
            out = expanded(options.out) if options.out else None
            path = out or clip_path(agent, options.game, options.action_mode, "_memory.mp4")
            Console().say(f"film: {write_clip(pictures, path, fps)}")
        environments.close()
        try:
            stop.check()
        except Interrupted as interrupted:
            return 128 + interrupted.signal_number
    return 0


def check(options: WatchOptions) -> None:
    """Raise a one-line `ValueError` for invalid or conflicting options."""
    if options.frames is not None and options.frames < 1:
        raise ValueError(f"--frames must be at least 1, not {options.frames}")
    check_range("seconds", options.seconds, SECONDS)
    if options.live and options.out is not None:
        raise ValueError("--live writes no file: leave out --live or --out")
    if options.out is not None and options.out.suffix.lower() not in (".mp4", ".gif"):
        raise ValueError(f"--out {options.out} must end in .mp4 or .gif")
    if options.out is not None and not expanded(options.out).parent.is_dir():
        raise ValueError(f"--out {options.out}: no such folder; create it first")


def _limit(options: WatchOptions, fps: float) -> int | None:
    """Return the maximum number of film frames; None for the whole episode."""
    asked = [options.frames, options.seconds and max(1, round(options.seconds * fps))]
    return min((limit for limit in asked if limit is not None), default=None)
