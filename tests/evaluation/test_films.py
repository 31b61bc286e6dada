"""Films of Atari games show what the agent saw, decided and remembered."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
import torch
from forks import Program

from fastweights import envs
from fastweights.agents.network import Network, NetworkConfig
from fastweights.cores import CORES
from fastweights.evaluation.clips import visible_environments
from fastweights.evaluation.films import film, memory, timelines
from fastweights.evaluation.films.drawing import LINES, _text, diverging, enlarge, sequential
from fastweights.evaluation.films.memory import Change
from fastweights.evaluation.films.memory import heads as matrices
from fastweights.evaluation.films.moments import Moment, moments
from fastweights.evaluation.films.screen import Screen
from fastweights.evaluation.films.timelines import LABEL
from fastweights.evaluation.player import Player
from fastweights.evaluation.playing import GamePlan, play
from fastweights.launch import atari, watch
from fastweights.training.saved_agent import open_agent
from tests.launch.test_bad_input import error_of

TINY = {"layers": 2, "width": 16, "heads": 2, "feedforward": 16}
FAST = ["--num-threads", "1", "--num-envs", "2", "--batch-size", "2", "--unroll-length", "8"]
SMALL = ["--core-width", "16", "--core-heads", "2", "--core-feedforward", "16"]


SEED = 3


def player(core: str, env: str = "TMaze", **options) -> Player:
    environments = envs.make(env, 1, seed=SEED, render=True, num_threads=1, **options)
    config = NetworkConfig(
        frame_shape=environments.frame_shape,
        num_actions=environments.num_actions,
        core=core,
        core_options=tuple(item for item in TINY.items() if item[0] in CORES[core].options()),
        stem="auto" if env == "TMaze" else "shallow",
    )
    return Player(Network(config), environments, action_mode="sampled", seed=SEED)


def few(core: str, count: int, env: str = "TMaze") -> list[Moment]:
    return [moment for moment, _ in zip(moments(player(core, env)), range(count), strict=False)]


@pytest.mark.parametrize("core", ["rdn", "delta_rnn", "srwm", "lstm"])
def test_the_memory_shown_is_the_players(core):
    playing = player(core)
    for moment, _ in zip(moments(playing), range(4), strict=False):
        (state,) = playing._states
        states = [state] if core == "lstm" else state
        for layer, state in zip(moment.layers, states, strict=True):
            for name, tensor in state._asdict().items():
                np.testing.assert_allclose(layer[name], tensor[0].numpy(), atol=1e-5)


def test_a_game_of_lives_is_marked_where_they_end():
    """Compare the ends of Breakout's five lives with the same game played without a film."""
    short = {"options": {"frame_skip": 12}}
    playing = player("rdn", "Breakout", **short)
    shown = list(moments(playing))
    again = player("rdn", "Breakout", **short)
    again._network = playing._network
    lost, firsts, rewards = [], [bool(again.row.is_first[0])], []
    while not again.row.episodes:
        again.step()
        lost.append(bool(again.row.lives))
        firsts.append(bool(again.row.is_first[0]))
        rewards.append(float(again.row.reward[0]))
    assert [m.life_lost for m in shown] == lost and sum(lost) == 5
    assert [m.is_first for m in shown] == firsts[:-1] and sum(firsts[:-1]) == 5
    assert [m.reward for m in shown] == rewards
    assert [m.game_over for m in shown] == [False] * (len(lost) - 1) + [True]
    assert [m.step for m in shown] == list(range(again.row.episodes[0].agent_steps))


def test_change_is_measured_from_zero_after_a_reset():
    shown = few("rdn", 3)
    change = Change(0, "fast_weights")
    steps = [change(moment) for moment in shown]
    before, after = (moment.layers[0]["fast_weights"] for moment in shown[1:])
    np.testing.assert_allclose(steps[2], np.linalg.norm(after - before, axis=(1, 2)), rtol=1e-6)
    again = change(shown[2]._replace(is_first=True))
    np.testing.assert_allclose(again, np.linalg.norm(after, axis=(1, 2)), rtol=1e-6)


@pytest.mark.parametrize(
    ("core", "env", "zoom"), [*((core, "TMaze", 1) for core in CORES), ("rdn", "Pong", 2)]
)
def test_the_screen_shows_the_game_and_the_memory_of_every_core(core, env, zoom):
    first, *more = few(core, 3, env)
    screen = Screen(first, "title", envs.make(env, 1).action_meanings)
    pictures = [screen.draw(moment) for moment in (first, *more)]
    assert len({picture.shape for picture in pictures}) == 1
    assert pictures[0].shape[0] % 2 == 0 and pictures[0].dtype == np.uint8
    game = enlarge(more[-1].picture, zoom)
    assert contains(pictures[-1], game)
    heads = [
        diverging(matrices(layer[name])[-1], np.abs(layer[name]).max())
        for layer in first.layers
        for name in layer
        if name.endswith(("fast_weights", "shift"))
    ]
    assert bool(heads) == CORES[core].has_fast_weights
    for head in heads:
        assert any(contains(pictures[0], enlarge(head, zoom)) for zoom in range(6, 0, -1))


@pytest.mark.parametrize("core", ["rdn", "delta_lstm", "lstm", "feedforward"])
def test_the_film_explains_its_lines_and_no_word_is_cut(core, monkeypatch):
    """A text that is wider or higher than its place would be cut."""
    written = []

    def noted(canvas, text, y, x, grey=0, size=12):
        written.append((text, canvas.shape, y, x, size))

    for module in (timelines, memory):
        monkeypatch.setattr(module, "write", noted)
    (moment,) = few(core, 1)
    Screen(moment, "title", envs.make("TMaze", 1).action_meanings).draw(moment)
    for text, (height, width, _), y, x, size in written:
        is_name = text.startswith(("norm of", "change of", "strength", "mean")) and ":" not in text
        end = LABEL if is_name else width
        assert x + _text(text, size).shape[1] <= end and y + size <= height, text
    words = [text for text, *_ in written]
    assert ("change of W" in words) == (core in ("rdn", "delta_lstm"))
    assert any("difference" in text for text in words) == (core != "feedforward")
    assert not any("query" in text for text in words if text.startswith("norm"))
    assert ("matrix 2" in words) == (core in ("rdn", "delta_lstm"))


def heads_drawn(inside: dict[str, np.ndarray], monkeypatch) -> tuple[str, np.ndarray]:
    """Return the heading and the picture of the matrices of one layer."""
    said = []
    monkeypatch.setattr(memory, "write", lambda canvas, text, *place, **size: said.append(text))
    (moment,) = few("lstm", 1)
    panel, *_ = memory.panels([inside], 400)
    area = np.full((*panel.size, 3), 255, np.uint8)
    panel.draw(area, moment._replace(layers=[inside]))
    return said[0], area[20:]


@pytest.mark.parametrize(
    ("low", "colours", "heading"),
    [(-1.0, diverging, "-2 to 2"), (0.5, sequential, "0 to 2")],
)
def test_a_head_s_keys_and_query_stand_beside_its_matrix(low, colours, heading, monkeypatch):
    """Each of 2 heads has a query and 3 keys of 4 numbers; negative ones are not left white."""
    bars = np.linspace(low, 2.0, 2 * 4 * 4).reshape(2, 4, 4)
    matrix = {"fast_weights": np.ones((2, 4, 4)), "strength": np.ones((2, 3))}
    inside = matrix | {"key": bars[:, :3], "query": bars[:, 3]}
    said, area = heads_drawn(inside, monkeypatch)
    assert said == f"fast weights ±1; left: 3 keys, query, {heading}"
    zoom, wide = 6, 4 * 6 + 4 * 10 + 8
    for head in range(2):
        for index, bar in enumerate(bars[head]):
            x = head * wide + index * 10
            shown = enlarge(colours(bar[:, None], 2.0), zoom, 8)
            assert np.array_equal(area[: 4 * zoom, x : x + 8], shown), (head, index)
        assert (area[4 * zoom :, head * wide :][:, :38] == 255).all()  # nothing is drawn below


def test_keys_that_do_not_fit_the_matrix_are_not_drawn_beside_it(monkeypatch):
    """A core of one's own may show its keys before they are mapped."""
    inside = {"fast_weights": np.ones((2, 4, 4)), "key": np.ones((2, 3)), "query": np.ones((2, 4))}
    said, _ = heads_drawn(inside, monkeypatch)
    assert said == "fast weights ±1; left: query, 0 to 1"


def test_the_key_shows_a_dotted_line_where_the_timelines_have_one():
    key = timelines.Key((), matrices=2, width=500)
    area = np.full((*key.size, 3), 255, np.uint8)
    key.label(area)
    line, dots = ((area[row, :18] == LINES[0]).all(-1) for row in (7, 23))
    assert line.all() and dots.any() and not dots.all()


def contains(picture: np.ndarray, part: np.ndarray) -> bool:
    """Return whether `picture` contains `part`, pixel by pixel."""
    height, width = part.shape[:2]
    first_line = re.compile(b"(?=" + re.escape(part[0].tobytes()) + b")")
    return any(
        np.array_equal(picture[y : y + height, x : x + width], part)
        for y, line in enumerate(picture)
        for x in (found.start() // 3 for found in first_line.finditer(line.tobytes()))
    )


def test_a_picture_wider_than_its_panel_is_shrunk_as_a_whole():
    """CartPole's picture is 600 pixels wide; a mark in its last corner must remain visible."""
    (moment,) = few("lstm", 1)
    wide = np.full((400, 600, 3), 200, np.uint8)
    wide[-40:, -40:] = (0, 90, 0)
    screen = Screen(moment._replace(picture=wide), "", envs.make("TMaze", 1).action_meanings)
    picture = screen.draw(moment._replace(picture=wide))
    height = round(400 * 320 / 600)
    shrunk = picture[18 : 18 + height, 18 : 18 + 320]
    assert (shrunk[0, 0] == 200).all() and tuple(shrunk[-1, -1]) == (0, 90, 0)
    assert shrunk.mean() == pytest.approx(wide.mean(), abs=1)


def test_a_lost_life_and_a_reset_have_borders_of_their_own():
    (moment,) = few("lstm", 1)
    colours = []
    for change in ({"life_lost": True}, {"is_first": True}, {"is_first": False}):
        screen = Screen(moment, "", envs.make("TMaze", 1).action_meanings)
        colours.append(tuple(screen.draw(moment._replace(**change))[12, 12]))
    assert colours == [tuple(LINES[1]), tuple(LINES[0]), (255, 255, 255)]


def test_colour_scales_are_symmetric_and_bounded():
    values = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, np.nan])
    colours = diverging(values, 1.0)
    assert (colours[2] >= 253).all() and (colours[5] >= 253).all()
    np.testing.assert_array_equal(colours[0], colours[1])
    np.testing.assert_array_equal(colours[3], colours[4])
    # Blue for negative values, orange for positive ones.
    assert colours[1, 2] > colours[1, 0] and colours[3, 0] > colours[3, 2]
    assert (sequential(np.zeros(1)) == 255).all() and (diverging(np.zeros(1), 0.0) >= 253).all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the run folder of a tiny agent on Pong."""
    folder = tmp_path_factory.mktemp("films")
    where = ["--savedir", str(folder), "--xpid", "pong"]
    recipe = ["--env", "Pong", "--stem", "shallow", "--total-steps", "64"]
    assert atari.main([*recipe, *SMALL, *FAST, *where]) == 0
    return folder / "pong"


def test_a_film_has_a_picture_an_agent_step(trained, capsys):
    assert watch.main([str(trained), "--frames", "9", "--num-threads", "1"]) == 0
    (path,) = (trained / "clips").iterdir()
    assert path.name == "step_000000000064_trained_argmax_seed1000000_memory.mp4"
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    film = imageio.imread(path)
    assert film.shape[0] == 9 and film.shape[2] == 1280
    assert imageio.immeta(path)["fps"] == 15


def test_three_stacked_pictures_are_not_taken_for_colours(tmp_path):
    recipe = ["--env", "Pong", "--env-options", "frame_stack=3", "--core", "lstm"]
    where = ["--savedir", str(tmp_path), "--xpid", "pong", "--total-steps", "16"]
    assert atari.main([*recipe, "--stem", "shallow", "--core-width", "16", *FAST, *where]) == 0
    agent = open_agent(tmp_path / "pong")
    environments = visible_environments(agent, GamePlan(protocol="trained", seed=SEED))
    moment, *_ = played = list(
        islice(film.episode(agent, environments, "argmax", SEED, torch.device("cpu")), 2)
    )
    assert moment.frame.shape == (3, 84, 84)
    picture, *_ = film.filmed(agent, environments, iter(played), None)
    for grey in moment.frame:
        assert contains(picture, grey[..., None].repeat(3, -1))


def test_a_time_limit_below_one_agent_step_leaves_one_picture(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "longest_test", lambda *_: 3)  # emulator frames
    assert watch.main([str(trained), "--out", str(tmp_path / "a.mp4"), "--num-threads", "1"]) == 0
    assert len(imageio.imread(tmp_path / "a.mp4")) == 1


def test_three_channels_of_another_game_are_colours():
    (moment,) = few("lstm", 1)
    colours = np.random.default_rng(0).integers(0, 255, (3, 168, 168), np.uint8)
    moment = moment._replace(frame=colours)
    screen = Screen(moment, "", envs.make("TMaze", 1).action_meanings)
    assert contains(screen.draw(moment), colours.transpose(1, 2, 0))


def test_the_game_shown_is_the_one_that_evaluate_counts(trained):
    """The film shows game i of an evaluation; a cap shortens it."""
    agent = open_agent(trained)
    plan = GamePlan(episodes=2, repeats=1, protocol="trained", seed=40, max_frames=400)
    evaluated = play(agent.network, agent.options, agent.step, plan, "sampled")
    game = evaluated.episodes[1]
    options = watch.WatchOptions(run=trained, action_mode="sampled", seed=41)
    played = film.episode(
        agent,
        visible_environments(agent, options.game),
        "sampled",
        options.seed,
        torch.device("cpu"),
    )
    shown = list(islice(played, game.agent_steps))
    assert sum(moment.reward for moment in shown) == game.episode_return != 0
    assert len({moment.action for moment in shown}) > 1


def test_a_whole_episode_is_filmed_unless_a_cap_is_asked_for(tmp_path, capsys):
    maze = ["--env", "TMaze", "--env-options", "corridor=3", "--core", "feedforward"]
    where = ["--savedir", str(tmp_path), "--xpid", "maze"]
    assert atari.main([*maze, *FAST, "--total-steps", "64", *where]) == 0
    run, out = str(tmp_path / "maze"), tmp_path / "[bold]maze.mp4"  # not markup
    playing = player("feedforward", "TMaze", options={"corridor": 3})
    assert watch.main([run, "--out", str(out), "--num-threads", "1"]) == 0
    assert f"film: {out}\n" in capsys.readouterr().out
    assert 4 <= len(imageio.imread(out)) <= 13  # between the shortest and the longest possible game
    assert len(list(moments(playing))) == playing.row.episodes[0].agent_steps
    assert watch.main([run, "--out", str(out), "--seconds", "0.25", "--num-threads", "1"]) == 0
    assert len(imageio.imread(out)) == 2


def test_a_film_under_other_options_of_the_environment_says_so(trained, tmp_path, capsys):
    words = [str(trained), "--frames", "2", "--num-threads", "1"]
    assert watch.main([*words, "--env-options", "sticky=0.25"]) == 0
    (path,) = (trained / "clips").glob("*sticky*")
    path.unlink()
    capsys.readouterr()
    assert "unknown Atari option 'stickie'" in error_of(
        watch.main, [*words, "--env-options", "stickie=0.25"], capsys
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere"),
        (["{run}", "--frames", "0"], "--frames must be at least 1"),
        (["{run}", "--seconds", "-1"], "--seconds must lie in (0, 1e9], not -1.0"),
        (["{run}", "--seconds", "1e308"], "--seconds must lie in (0, 1e9], not 1e+308"),
        (["{run}", "--protocol", "macho"], "known: full-game"),
        (["{run}", "--live", "--out", "film.mp4"], "leave out --live or --out"),
        (["{run}", "--out", "film.avi"], "must end in .mp4 or .gif"),
        (["{run}", "--out", "nowhere/film.mp4"], "no such folder"),
    ],
)
def test_watch_refuses(arguments, says, trained, capsys):
    arguments = [str(trained) if argument == "{run}" else argument for argument in arguments]
    assert says in error_of(watch.main, arguments, capsys)


@pytest.mark.skipif(shutil.which("xvfb-run") is None, reason="needs xvfb-run, a virtual display")
@pytest.mark.skipif(find_spec("tkinter") is None, reason="needs tkinter")
def test_a_window_shows_the_film_until_it_is_closed():
    """On a virtual display, the picture fills the window, and closing the window is noticed."""
    code = (
        "import numpy as np\n"
        "from fastweights.evaluation.films.window import Window\n"
        "picture = np.zeros((500, 800, 3), np.uint8)\n"
        "picture[30:, 50:] = 1, 2, 3\n"
        "with Window('title', 30) as window:\n"
        "    for _ in range(30):\n"  # a second, enough for the window to appear
        "        window.show(picture)\n"
        "    shown = np.asarray(window._figure.canvas.buffer_rgba())[..., :3]\n"
        "    high, wide, _ = shown.shape\n"
        "    assert window.is_open and high >= 500 and abs(wide / high - 1.6) < 0.01\n"
        "    assert (shown[high // 10 :, wide // 10 :] == (1, 2, 3)).all()\n"
        "    assert (shown[: high // 20, : wide // 20] == 0).all()\n"
        "    on_screen = window._figure.canvas.manager.window\n"
        "    on_screen.tk.eval(on_screen.protocol('WM_DELETE_WINDOW'))\n"
        "    window.show(picture)\n"
        "    assert not window.is_open"
    )
    done = subprocess.run(
        ["xvfb-run", "--auto-servernum", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


def test_a_window_without_a_display_is_one_line(monkeypatch):
    """Run it in a separate process, because a window's toolkit stays loaded."""
    code = (
        "from fastweights.host.errors import one_line_errors\n"
        "from fastweights.evaluation.films.window import Window\n"
        "one_line_errors(Window)('title', 15)"
    )
    for name in [name for name in os.environ if "DISPLAY" in name]:
        monkeypatch.delenv(name)
    done = Program(code).end()
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: --live: no window can be opened here")
