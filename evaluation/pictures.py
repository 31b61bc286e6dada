"""What a run looks like: its learning curve, a clip of a game, one frame.

All files are written beside and renamed. Nothing here needs a screen.
"""

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.evaluation.training_returns import FULL_GAME, Unit, recent_means, shortfall
from fastweights.host.atomic_files import replacing

_REFERENCES = COLOURS[2:]
_FEW_POINTS = 20  # of a curve, which are drawn as points too
_SHORTEST_GIF_FRAME = 20  # milliseconds; browsers slow shorter ones down to 100


def learning_curve(
    logs: Mapping[str, list[Any]],
    path: Path,
    *,
    unit: Unit,
    num_envs: int,
    title: str = "Learning curve",
    frames_per_step: int,
    references: Mapping[str, float] | None = None,
) -> None:
    """Draws returns of one unit over agent steps into the PNG `path`.

    Args:
        logs: Columns as `read_logs` returns them.
        path: The PNG to write.
        unit: What the returns are of, from `measured_unit`.
        num_envs: Environments that the run trains on; the mean begins with as many games or lives.
        title: The heading.
        frames_per_step: Emulator frames an agent step. Above 1 an upper axis shows frames.
        references: Returns of the same unit to draw as horizontal lines, by name, e.g.
            `{"random play": 163.9}`.

    Raises:
        OSError: `path` cannot be written.
    """
    figure = draw_learning_curve(logs, unit, num_envs, title, frames_per_step, references or {})
    with replacing(Path(path)) as partial:
        figure.savefig(partial, format="png")


def draw_learning_curve(
    logs: Mapping[str, list[Any]],
    unit: Unit,
    num_envs: int,
    title: str,
    frames_per_step: int,
    references: Mapping[str, float],
) -> Any:
    """The Matplotlib figure that `learning_curve` writes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if unit is FULL_GAME:
        _plot_games(axes, logs)
    _plot_recent(axes, recent_means(logs, unit, num_envs), unit)
    for (name, value), colour in zip(references.items(), itertools.cycle(_REFERENCES)):
        label = f"{name} ({value:,.{1 if abs(value) >= 10 else 2}f})"
        axes.axhline(value, color=colour, linestyle="--", linewidth=1.2, label=label)
    _label(axes, title, unit, frames_per_step)
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, fontsize="small")
    if said := shortfall(logs, num_envs):
        figure.supxlabel(textwrap.fill(str(said), 110), fontsize="small")
    return figure


def write_clip(frames: Iterable[np.ndarray], path: Path, fps: float) -> Path:
    """Writes pictures [H, W, 3] or [H, W], uint8, as a clip; returns where it went.

    A `path` ending in .gif makes a GIF, any other an MP4 (H.264, yuv420p); small pictures are
    enlarged two or three times. Without ffmpeg it becomes a GIF beside, and stderr says so.
    Frames are taken one by one, so a generator of a long game costs no memory for an MP4.

    Raises:
        ValueError: no frames, not pictures, or of different sizes.
        OSError: `path` cannot be written.
    """
    path, pictures = Path(path), _checked(frames)
    if path.suffix.lower() != ".gif" and not _has_ffmpeg():
        path = path.with_suffix(".gif")
        print(f"warning: no ffmpeg on this machine, so the clip is {path}", file=sys.stderr)
    write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
    with replacing(path) as partial:
        write(pictures, partial, fps)
    return path


def still(frame: np.ndarray, path: Path) -> None:
    """Writes a picture [H, W, 3] or [H, W], uint8, as PNG, enlarged as a clip's frames are.

    Raises `ValueError` where it is no picture, `OSError` where `path` cannot be written.
    """
    from PIL import Image

    (picture,) = _checked([frame])
    with replacing(Path(path)) as partial:
        Image.fromarray(picture).save(partial, format="PNG")


def _plot_games(axes: Any, logs: Mapping[str, list[Any]]) -> None:
    games = [
        (step, value)
        for step, values in zip(logs.get("step", ()), logs.get("episode_returns", ()), strict=False)
        if isinstance(values, tuple)
        for value in values
    ]
    if games:
        axes.plot(*zip(*games, strict=True), ".", color=BLUE, alpha=0.25, label="one full game")


def _plot_recent(axes: Any, points: Sequence[tuple[int, float]], unit: Unit) -> None:
    """A line; of few points, also the points."""
    marker = "o" if len(points) <= _FEW_POINTS else None
    label = f"mean of up to 100 recent {unit.plural}"
    axes.plot(*zip(*points, strict=True), color=ORANGE, linewidth=2, marker=marker, label=label)


def _label(axes: Any, title: str, unit: Unit, frames_per_step: int) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(textwrap.fill(title, 70))
    axes.set_xlabel("agent steps")
    axes.set_ylabel(f"return of a {unit.name} (undiscounted, unclipped)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if frames_per_step > 1:
        convert = _scaling(frames_per_step), _scaling(1 / frames_per_step)
        upper = axes.secondary_xaxis("top", functions=convert)
        upper.set_xlabel(f"emulator frames (agent steps × {frames_per_step})")
        upper.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _scaling(factor: float) -> Callable[[Any], Any]:
    return lambda values: values * factor


def _has_ffmpeg() -> bool:
    try:
        import imageio_ffmpeg

        return bool(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return False


def _write_mp4(pictures: Iterator[np.ndarray], path: Path, fps: float) -> None:
    import imageio_ffmpeg

    first = next(pictures)
    height, width = first.shape[:2]
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=fps,
        codec="libx264",
        pix_fmt_out="yuv420p",
        quality=8,
        macro_block_size=2,
        ffmpeg_log_level="error",
    )
    writer.send(None)
    count = 0
    try:
        for picture in itertools.chain([first], pictures):
            writer.send(np.ascontiguousarray(picture))
            count += 1
    finally:
        writer.close()
    # ffmpeg's exit code is lost in the writer; a full disk shows as frames that are not there.
    _check_length(path, count)


def _check_length(path: Path, count: int) -> None:
    import imageio_ffmpeg

    try:
        written, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except RuntimeError as error:
        raise OSError(f"ffmpeg could not write {path}") from error
    if written != count:
        raise OSError(f"ffmpeg wrote {written} of {count} frames to {path}: is the disk full?")


def _write_gif(pictures: Iterator[np.ndarray], path: Path, fps: float) -> None:
    from PIL import Image

    first, *others = (Image.fromarray(picture) for picture in pictures)
    duration = max(_SHORTEST_GIF_FRAME, round(1000 / fps))
    first.save(path, format="GIF", save_all=True, append_images=others, duration=duration, loop=0)


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """RGB pictures of one size with even sides. The first is checked before anything is written."""
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise ValueError("a clip needs at least one frame")
    size = np.shape(first)
    return (_enlarged(_as_rgb(frame, size)) for frame in itertools.chain([first], frames))


def _as_rgb(frame: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    frame = np.asarray(frame)
    is_picture = frame.ndim == 2 or (frame.ndim == 3 and frame.shape[-1] == 3)
    if not is_picture or frame.dtype != np.uint8:
        raise ValueError(
            f"a picture is [H, W, 3] or [H, W] of uint8, not {frame.shape} of {frame.dtype}"
        )
    if frame.shape != size:
        raise ValueError(f"all frames of a clip have one shape, not {size} and {frame.shape}")
    return np.repeat(frame[..., None], 3, axis=-1) if frame.ndim == 2 else frame


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """Nearest neighbour, so that pixels stay sharp; then even sides, which yuv420p asks for."""
    longest = max(picture.shape[:2])
    factor = 3 if longest <= 120 else 2 if longest <= 320 else 1
    picture = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
