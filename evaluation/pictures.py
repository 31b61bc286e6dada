"""Clips and single pictures of a game.

All files are written under a temporary name and renamed. Nothing here needs a display.
"""

import errno
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fastweights.host import replacing

_SHORTEST_GIF_FRAME = 20  # milliseconds; browsers show shorter frames for 100


def write_clip(frames: Iterable[np.ndarray], path: Path, fps: float) -> Path:
    """Write pictures [H, W, 3] or [H, W], uint8, as a clip; return its path.

    A `path` that ends in .gif gives a GIF, any other an MP4 (H.264, yuv420p). Small pictures are
    enlarged two or three times. Without ffmpeg, a GIF is written beside `path`, with a warning on
    stderr. Frames are read one by one, so an MP4 of a long game needs little memory.

    Raises:
        ValueError: no frames, not pictures, or different sizes.
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
    """Write a picture [H, W, 3] or [H, W], uint8, as PNG, enlarged like the frames of a clip.

    Raises:
        ValueError: not a picture.
        OSError: `path` cannot be written.
    """
    from PIL import Image

    (picture,) = _checked([frame])
    with replacing(Path(path)) as partial:
        Image.fromarray(picture).save(partial, format="PNG")


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
    # The writer ignores ffmpeg's exit code; missing frames reveal a full disk.
    _check_length(path, count)


def _check_length(path: Path, count: int) -> None:
    import imageio_ffmpeg

    try:
        written, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except RuntimeError as error:
        raise _broken_off("ffmpeg could not write it", path) from error
    if written != count:
        raise _broken_off(f"ffmpeg wrote {written} of {count} frames", path)


def _broken_off(what: str, path: Path) -> OSError:
    return OSError(errno.EIO, f"{what}: is the disk full?", str(path))


def _write_gif(pictures: Iterator[np.ndarray], path: Path, fps: float) -> None:
    from PIL import Image

    first, *others = (Image.fromarray(picture) for picture in pictures)
    # GIF times are in hundredths of a second: each frame's end is rounded to the nearest.
    ends = [10 * round(100 * (frame + 1) / fps) for frame in range(1 + len(others))]
    durations = [end - begin for begin, end in itertools.pairwise([0, *ends])]
    durations = [max(_SHORTEST_GIF_FRAME, duration) for duration in durations]
    first.save(path, format="GIF", save_all=True, append_images=others, duration=durations, loop=0)


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield RGB pictures of equal size with even sides; check the first before writing."""
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
            f"a picture must be uint8 [H, W, 3] or [H, W], not {frame.dtype} {frame.shape}"
        )
    if frame.shape != size:
        raise ValueError(f"all frames of a clip must have one shape, not {size} and {frame.shape}")
    return np.repeat(frame[..., None], 3, axis=-1) if frame.ndim == 2 else frame


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """Enlarge by nearest neighbour to keep pixels sharp; then make sides even for yuv420p."""
    longest = max(picture.shape[:2])
    factor = 3 if longest <= 120 else 2 if longest <= 320 else 1
    picture = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
