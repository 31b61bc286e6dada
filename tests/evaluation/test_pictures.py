"""Learning curves, clips and stills can be opened again and show the right content."""

import errno
import sys

import imageio.v3 as imageio
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fastweights.evaluation.learning_curves import draw_learning_curve, save_figure
from fastweights.evaluation.pictures import still, write_clip
from fastweights.evaluation.training_returns import FULL_GAME, measured_unit, shortfall
from fastweights.host.errors import describe_os_error
from fastweights.records.log_table import LogTable, read_logs
from tests.evaluation.drawings import words_in


def frames(count: int, height: int = 84, width: int = 84) -> list[np.ndarray]:
    """Return frames with a white bar that moves to the right over a dark red ground."""
    result = np.full((count, height, width, 3), (60, 0, 0), np.uint8)
    for index in range(count):
        result[index, :, 4 * index : 4 * index + 8] = 255
    return list(result)


def logs(folder, ticks: int = 50) -> dict[str, list]:
    """Write logs of four environments; a game has four lives, and two games end in most ticks."""
    folder.mkdir(exist_ok=True)
    table, games = LogTable(folder), 0
    for tick in range(ticks):
        games += 2 * bool(tick % 5)
        table.log(
            {
                "step": 1000 * tick,
                "episode_returns": (tick * 3.0, tick * 4.0) if tick % 5 else None,
                "recent_full_game_return": tick * 3.5 if tick else None,
                "recent_life_return": tick * 1.0 if tick else None,
                "games": games,
                "lives": 4 * games + tick,
            }
        )
    return read_logs(folder)


def colours(path) -> set[tuple[int, ...]]:
    return {colour for _, colour in Image.open(path).convert("RGB").getcolors(maxcolors=2**24)}


def drawn(logs: dict[str, list], num_envs: int = 4, title: str = "Qbert") -> Figure:
    """Draw the curve of games or lives, whichever suffices, with the return before training."""
    unit = measured_unit(logs, num_envs)
    return draw_learning_curve(logs, unit, num_envs, title, 4, {"before training": 41.0})


def test_a_learning_curve_shows_full_games_and_references(tmp_path):
    path, columns = tmp_path / "curve.png", logs(tmp_path)
    unit, references = measured_unit(columns, 4), {"random play": 163.9}
    save_figure(draw_learning_curve(columns, unit, 4, "Qbert", 4, references), path)
    assert Image.open(path).size == (960, 600)
    # The mean and the reference have different colours.
    assert {(213, 94, 0), (0, 158, 115)} <= colours(path)
    assert "matplotlib.pyplot" not in sys.modules


def test_a_learning_curve_has_one_unit_and_its_axis_names_it(tmp_path):
    long = drawn(logs(tmp_path / "long"), title="a long title of a run " * 10)
    words = words_in(long)
    assert "return of a full game (undiscounted, unclipped)" in words
    assert not any("life" in text or "lives" in text for text in words)
    mean = max(long.axes[0].lines, key=lambda line: len(set(line.get_ydata())))
    short = logs(tmp_path / "short", ticks=6)  # 8 games of the 10 that a mean needs, 37 lives
    words = words_in(drawn(short))
    assert "return of a life (undiscounted, unclipped)" in words
    assert any("8 full games and 37 lives ended in 5,000 agent steps" in text for text in words)
    assert not any("return of a full game" in text for text in words)
    (line,) = (one for one in drawn(short).axes[0].lines if "mean" in one.get_label())
    assert list(line.get_ydata()) == [2.0, 3.0, 4.0, 5.0]  # of lives, from the tenth on
    assert max(mean.get_ydata()) == 49 * 4.0  # a single game


def test_the_upper_axis_counts_four_frames_an_agent_step(tmp_path):
    figure = drawn(logs(tmp_path))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (upper,) = axes.child_axes
    assert upper.get_xlabel() == "emulator frames (agent steps × 4)"
    assert upper.get_xlim() == pytest.approx([4 * end for end in axes.get_xlim()])


def test_a_lucky_game_does_not_squash_all_others(tmp_path):
    columns = logs(tmp_path)
    last = max(i for i, values in enumerate(columns["episode_returns"]) if values)
    columns["episode_returns"][last] = (50_000.0,)
    axes = drawn(columns).axes[0]
    assert axes.get_ylim()[1] < 1_000
    (above,) = (one for one in axes.lines if "above the axis" in one.get_label())
    assert above.get_label() == "1 above the axis, at most 50,000"
    assert list(above.get_xdata()) == [columns["step"][last]]
    assert axes.get_ylim()[0] < above.get_ydata()[0] < axes.get_ylim()[1]
    games = sum(len(v) for v in columns["episode_returns"] if isinstance(v, tuple))
    (near,) = (one for one in axes.lines if one.get_label() == "one full game")
    assert len(near.get_xdata()) == games - 1


def test_a_mean_begins_with_as_many_games_as_there_are_environments(tmp_path):
    columns = logs(tmp_path)
    (line,) = (one for one in drawn(columns, 32).axes[0].lines if "mean" in one.get_label())
    first = columns["step"].index(line.get_xdata()[0])
    assert columns["games"][first - 1] < 32 <= columns["games"][first]
    assert any("is biased towards short games" in text for text in words_in(drawn(columns, 32)))
    assert shortfall(columns, 4) is None


def test_a_short_run_says_what_it_could_not_measure(tmp_path):
    short = logs(tmp_path, ticks=3)
    assert measured_unit(short, 32) is None
    said = str(shortfall(short, 32))
    assert said.startswith(
        "4 full games and 18 lives ended in 2,000 agent steps. A curve begins at 32"
    )
    assert said.endswith("Train longer for a learning curve.")
    one_life = short | {"lives": short["games"], "games": [0, 11, 12]}
    assert measured_unit(one_life, 4) is FULL_GAME
    assert measured_unit(one_life | {"lives": [0, 0, 9], "games": [0, 0, 9]}, 4) is None
    assert "lives" not in str(shortfall(one_life | {"lives": [0, 0, 9], "games": [0, 0, 9]}, 4))
    assert str(shortfall({}, 4)).startswith("No full game ended in 0 agent steps")


@pytest.mark.parametrize(("height", "width"), [(84, 84), (210, 160), (33, 7), (401, 301)])
def test_an_mp4_holds_every_frame_with_even_sides(tmp_path, height, width):
    path = tmp_path / "clip.mp4"
    assert write_clip(iter(frames(12, height, width)), path, fps=15) == path
    decoded = imageio.imread(path)
    factor = 3 if height <= 120 else 2 if height <= 320 else 1
    expected = [side * factor + side * factor % 2 for side in (height, width)]
    assert decoded.shape == (12, *expected, 3)
    assert imageio.immeta(path)["fps"] == 15
    assert imageio.immeta(path)["pix_fmt"].startswith("yuv420p")
    assert [file.name for file in tmp_path.iterdir()] == ["clip.mp4"]


def test_an_mp4_shows_the_frames_in_order(tmp_path):
    decoded = imageio.imread(write_clip(frames(12), tmp_path / "clip.mp4", fps=15))
    brightest = decoded[..., 1].mean(axis=1)  # [time, x] of the green channel
    centres = [np.average(np.arange(252), weights=row**2) for row in brightest.astype(float)]
    np.testing.assert_allclose(centres, [12 * index + 11.5 for index in range(12)], atol=4)


def test_a_gif_holds_every_frame(tmp_path):
    path = write_clip(frames(7), tmp_path / "clip.gif", fps=10)
    with Image.open(path) as image:
        assert image.n_frames == 7 and image.size == (252, 252)
        assert image.info["duration"] == 100 and image.info["loop"] == 0
        assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("fps", [15.0, 60.0, 7.5])
def test_a_gif_lasts_as_long_as_its_game(fps, tmp_path):
    """A GIF's frames have whole hundredths of a second; their sum has them, too."""
    with Image.open(write_clip(frames(30), tmp_path / "clip.gif", fps)) as image:
        lasts = []
        for frame in range(image.n_frames):
            image.seek(frame)
            lasts.append(image.info["duration"])
    assert abs(sum(lasts) - 1000 * 30 / min(fps, 50.0)) <= 5


def test_grey_pictures_make_a_clip(tmp_path):
    grey = [frame[..., 1] for frame in frames(3)]
    assert imageio.imread(write_clip(grey, tmp_path / "clip.mp4", 10)).shape == (3, 252, 252, 3)


def test_without_ffmpeg_there_is_a_gif_and_a_word_about_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    path = write_clip(frames(3), tmp_path / "clip.mp4", fps=10)
    assert path == tmp_path / "clip.gif" and Image.open(path).n_frames == 3
    assert "no ffmpeg" in capsys.readouterr().err


def test_what_is_no_clip_is_refused_and_leaves_nothing(tmp_path):
    wrong = {
        "at least one frame": [],
        "uint8": [np.zeros((8, 8, 3))],
        "a picture must be": [np.zeros((8, 8, 4), np.uint8)],
        "one shape": [*frames(2), np.zeros((9, 9, 3), np.uint8)],
    }
    for message, bad in wrong.items():
        for name in ("clip.mp4", "clip.gif"):
            with pytest.raises(ValueError, match=message):
                write_clip(bad, tmp_path / name, fps=10)
    assert not any(tmp_path.iterdir())


def test_a_clip_that_cannot_be_written_is_an_os_error(tmp_path, monkeypatch):
    for name in ("clip.mp4", "clip.gif"):
        with pytest.raises(OSError):
            write_clip(frames(2), tmp_path / "nowhere" / name, fps=10)
    old = write_clip(frames(2), tmp_path / "clip.mp4", fps=10).read_bytes()
    monkeypatch.setattr("imageio_ffmpeg.count_frames_and_secs", lambda _: (1, 0.1))
    with pytest.raises(OSError, match="1 of 5 frames") as raised:
        write_clip(frames(5), tmp_path / "clip.mp4", fps=10)
    assert describe_os_error(raised.value) == (
        f"{tmp_path / 'clip.mp4'}: ffmpeg wrote 1 of 5 frames: is the disk full?"
    )
    assert (tmp_path / "clip.mp4").read_bytes() == old
    assert [file.name for file in tmp_path.iterdir()] == ["clip.mp4"]


def test_a_still_is_the_frame_enlarged_without_blur(tmp_path):
    frame = np.random.default_rng(0).integers(0, 256, (20, 10, 3), dtype=np.uint8)
    still(frame, tmp_path / "still.png")
    read = np.asarray(Image.open(tmp_path / "still.png"))
    np.testing.assert_array_equal(read, frame.repeat(3, axis=0).repeat(3, axis=1))


def test_a_full_disk_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "still.png"
    still(frames(1)[0], path)
    old = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    columns = logs(tmp_path / "run")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        save_figure(draw_learning_curve(columns, FULL_GAME, 4, "Learning curve", 1, {}), path)
    assert path.read_bytes() == old
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run", "still.png"]
