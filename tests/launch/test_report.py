"""Reports on real runs: every number on the page can be found in the run folders."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from launch import atari, report
from launch.evaluation_file import Evaluation, PlayedGame
from launch.log_table import LogTable
from launch.options import RunOptions
from launch.reports.curves import Curve, band, hours, numbers
from launch.reports.document import Links, Table, to_html, to_markdown
from launch.reports.figures import improvements, line_styles
from launch.reports.runs import Run, grouped, open_run, open_runs
from launch.reports.scores import over_games, paper_scores, relative_improvements, scores
from launch.run_folder import RunFolder
from tests.launch.test_bad_input import error_of

FAST = ["--num-threads", "1", "--num-envs", "2", "--batch-size", "2", "--unroll-length", "16"]
# Games of 16 agent steps, so that some are finished.
GAME = ["--env", "Pong", "--env-options", "max_frames=64", "--stem", "shallow"]
RUNS = {"rdn-1": ("rdn", 1), "rdn-2": ("rdn", 2), "lstm-1": ("lstm", 1)}
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def evaluation(core: str, returns: list[float], **changes) -> Evaluation:
    games = [
        PlayedGame(0, index, index, value, (value,), (0,), 1, 16, 64, False)
        for index, value in enumerate(returns)
    ]
    about = {
        "env": "Pong",
        "protocol": "full-game",
        "score": "game",
        "max_frames": None,
        "rules": {},
    }
    played = {"action_mode": "argmax", "seed": 1, "repeats": 1, "agent_steps": 256}
    known = about | played | {"core": core, "score_modulus": 1_000_000}
    return Evaluation(**(known | changes), episodes=tuple(games))


def short_run(folder: Path, name: str, *played: Evaluation, **options) -> Path:
    """A run folder as training leaves it, without the training."""
    recipe = RunOptions(**{"env": "Pong", "core": "rdn"} | options)
    run = RunFolder.create(folder, "new", recipe.to_dict())
    for step in (128, 256):
        run.log({"step": step, "recent_full_game_return": 1.0, "agent_steps_per_second": 2.0})
    run.finish()
    for one in played:
        one.save(run.path / "evaluations" / one.file_name())
    return run.path.rename(folder / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The folder of three short runs on Pong, with test scores of 2, 4 and 10."""
    folder = tmp_path_factory.mktemp("runs")
    small = {"rdn": ["--core-width", "16", "--core-heads", "2"], "lstm": ["--core-width", "16"]}
    for (name, (core, seed)), score in zip(RUNS.items(), (2.0, 4.0, 10.0), strict=True):
        recipe = ["--core", core, *small[core], "--seed", str(seed), "--total-steps", "256"]
        where = ["--savedir", str(folder), "--xpid", name]
        assert atari.main([*GAME, *recipe, *FAST, *where]) == 0
        played = evaluation(core, [score - 1, score + 1])
        played.save(folder / name / "evaluations" / played.file_name())
    return folder


@pytest.fixture(scope="module")
def page(runs) -> Path:
    """The folder of a report on all of them."""
    (runs / "rdn-1" / "clips").mkdir()
    (runs / "rdn-1" / "clips" / "a clip.mp4").write_bytes(b"")
    assert report.main([*(str(runs / name) for name in RUNS), "--out", str(runs / "out")]) == 0
    return runs / "out"


class Page(HTMLParser):
    """Collects what a page refers to, its ids and its tables' cells."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.loaded, self.ids, self.rows, self.open = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)
        if tag == "a":
            self.links.append(found["href"])
        self.loaded += [found[name] for name in ("src", "srcset", "data") if name in found]
        self.loaded += (
            [found["href"]] if tag in ("link", "image", "use") and "href" in found else []
        )
        self.ids += [found["id"]] if "id" in found else []
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in ("meta", "link", "img", "br"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def reported(folder: Path, *runs: Path, options: tuple[str, ...] = ()) -> Page:
    """The page of a report on `runs`, written into `folder`."""
    assert report.main([*map(str, runs), "--out", str(folder), *options]) == 0
    return Page((folder / "report.html").read_text())


def words_of(drawing: bytes) -> list[str]:
    texts = ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in texts]


def test_the_page_loads_nothing_and_is_well_formed(page):
    text = (page / "report.html").read_text()
    parsed = Page(text)
    assert parsed.open == []
    assert parsed.loaded == ["data:,"]
    assert "<script" not in text and "@import" not in text
    assert len(parsed.ids) == len(set(parsed.ids))
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 3  # learning curves, rdn over lstm, throughput
    used = set()
    for drawing in drawings:
        root = ET.fromstring(drawing)
        title, description = root[0], root[1]
        assert root.get("role") == "img" and title.text and len(description.text) > 20
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 5  # selectable
        used |= set(re.findall(r'(?:url\(|href=")#([^)"]+)', drawing))
    assert used and used <= set(parsed.ids)
    assert {link[1:] for link in parsed.links if link.startswith("#")} <= set(parsed.ids)


def test_the_page_says_what_the_runs_came_to(page, runs):
    rows = Page((page / "report.html").read_text()).rows
    scores = {row[0]: row for row in rows if row[1:2] == ["full-game, argmax"]}
    assert scores["rdn"][2:6] == ["256", "3.00 ± 1.00", "3.00 ± 1.00", "2 seeds"]
    assert scores["lstm"][3:6] == ["10.0 ± 1.0", "10.0 ± 1.0", "episodes"]
    normalised = (3 + 20.7) / (14.6 + 20.7)  # random play and the human tester on Pong
    assert float(scores["rdn"][6]) == pytest.approx(normalised, abs=1e-3)
    assert scores["rdn"][7:] == ["21 ± 0", "21 ± 0"]
    last = open_run(runs / "lstm-1").logs["recent_full_game_return"][-1]
    overview = next(row for row in rows if row[0] == "lstm-1")
    assert overview[1:5] == ["Pong", "lstm", "1", "256"]
    assert float(overview[5].replace(",", "")) == pytest.approx(last, abs=0.01)
    text = (page / "report.html").read_text()
    assert "-70 %" in text  # 3 over 10
    assert ["core", "lstm", "rdn", "rdn"] in rows


def test_the_markdown_says_the_same_beside_its_figures(page):
    text = (page / "report.md").read_text()
    figures = re.findall(r"\]\((report_figures/[^)]+)\)", text)
    assert len(figures) == 3
    for figure in figures:
        assert ET.parse(page / figure).getroot().tag.endswith("svg")
    rows = Page((page / "report.html").read_text()).rows
    for row in rows:
        assert "| " + " | ".join(_marked(cell) for cell in row) + " |" in text


def _marked(text: str) -> str:
    return re.sub(r"([\\|*_`\[<])", r"\\\1", text)


def test_links_lead_from_the_page_to_the_clips(page, runs):
    links = Page((page / "report.html").read_text()).links
    assert "../rdn-1/clips/a%20clip.mp4" in links
    files = [link for link in links if not link.startswith("#")]
    assert len(files) == 4
    assert all((page / link.replace("%20", " ")).exists() for link in files)


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_a_browser_shows_every_drawing_without_an_error(page, tmp_path):
    """In headless Chromium, offline: sizes come from its layout, errors from its console."""
    measure = """<script>
      const seen = [...document.querySelectorAll("svg, img")].map(e => e.getBoundingClientRect());
      const texts = [...document.querySelectorAll("svg text")].filter(t => t.getBBox().width > 0);
      const wide = document.documentElement.scrollWidth - innerWidth;
      document.title = JSON.stringify({sizes: seen.map(s => [s.width, s.height]),
                                       texts: texts.length, wide: wide});
    </script></body>"""
    text = (page / "report.html").read_text()
    (tmp_path / "page.html").write_text(text.replace("</body>", measure))
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", profile]
    network = ["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1200,900"]
    done = subprocess.run(
        [BROWSER, *flags, *network, "--dump-dom", f"file://{tmp_path / 'page.html'}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ":CONSOLE" not in done.stderr
    measured = json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1])
    assert len(measured["sizes"]) == 3
    assert all(width > 500 and height > 100 for width, height in measured["sizes"])
    assert measured["texts"] > 40 and measured["wide"] <= 0


def test_a_run_still_being_written_is_reported(runs, tmp_path):
    shutil.copytree(runs / "rdn-1", tmp_path / "now")
    logs = tmp_path / "now" / "logs.csv"
    whole = logs.read_bytes()
    logs.write_bytes(whole[: whole.rfind(b"\r\n", 0, -2) + 20])
    (evaluation_path,) = (tmp_path / "now" / "evaluations").glob("*.json")
    evaluation_path.write_text("{torn")
    assert len(open_run(tmp_path / "now").logs["step"]) == whole.count(b"\r\n") - 2
    assert report.main([str(tmp_path / "now")]) == 0
    text = (tmp_path / "now" / "report" / "report.md").read_text()
    assert "| now | Pong | rdn | 1 |" in text and "No test episodes yet" in text


def test_what_is_no_run_is_one_line(runs, tmp_path, capsys):
    foreign, silent, empty = (tmp_path / name for name in ("foreign", "silent", "empty"))
    empty.mkdir()
    foreign.mkdir()
    (foreign / "meta.json").write_text(json.dumps({"args": {"env": "PongNoFrameskip-v4"}}))
    shutil.copytree(runs / "rdn-1", silent)
    (silent / "logs.csv").unlink()
    LogTable(silent)
    wrong = {
        "another program": [foreign],
        "logged nothing yet": [silent],
        "no meta.json": [empty],
        "nowhere": [tmp_path / "nowhere"],
        "such as rdn:lstm": [runs / "rdn-1", "--compare", "rdn"],
        "unknown core 'rnd'": [runs / "rdn-1", "--compare", "rnd:lt"],
        "at least one run": [],
    }
    for says, arguments in wrong.items():
        assert says in error_of(report.main, arguments, capsys)


def changed(run: Path, path: Path, before: str, after: str) -> Path:
    """A copy of a run, with other options in its meta.json."""
    shutil.copytree(run, path)
    meta = path / "meta.json"
    text = meta.read_text()
    assert before in text
    meta.write_text(text.replace(before, after))
    return path


def test_how_fast_a_run_was_made_is_no_difference_but_its_precision_is(runs, tmp_path):
    one, names = runs / "rdn-1", ("float32", "bfloat16")
    have, other = names if "float32" in (one / "meta.json").read_text() else names[::-1]
    slower = changed(one, tmp_path / "slower", '"micro_batch": null', '"micro_batch": 2')
    rounded = changed(
        one, tmp_path / "rounded", f'"precision": "{have}"', f'"precision": "{other}"'
    )
    found = grouped(open_runs([one, slower, rounded]))
    assert {group.label: len(group.runs) for group in found} == {
        f"rdn, precision {have}": 2,
        f"rdn, precision {other}": 1,
    }


def test_an_option_that_came_later_had_its_default_before(runs, tmp_path):
    one = runs / "rdn-1"
    older = changed(one, tmp_path / "older", '"feed_last_action": false,', "")
    on = '"feed_last_action": false', '"feed_last_action": true'
    other = changed(one, tmp_path / "other", *on)
    found = grouped(open_runs([one, older, other]))
    assert {group.label: len(group.runs) for group in found} == {
        "rdn, feed_last_action False": 2,
        "rdn, feed_last_action True": 1,
    }


def test_a_run_of_a_sequence_task_is_named_as_one(runs, tmp_path, capsys):
    shutil.copytree(runs / "rdn-1", tmp_path / "list_ops")
    about = {"args": {"core": "rdn", "task_name": "list_ops"}}
    (tmp_path / "list_ops" / "meta.json").write_text(json.dumps(about))
    said = error_of(report.main, [tmp_path / "list_ops", "--out", tmp_path / "out"], capsys)
    assert "is a run of a sequence task: its result.json has the figures" in said


def test_seeds_are_one_group_and_other_options_are_named(runs, tmp_path):
    for name in ("wide-1", "wide-2"):
        changed(runs / "rdn-1", tmp_path / name, '"core_width": 16', '"core_width": 32')
    found = grouped(
        open_runs([runs / n for n in RUNS] + [tmp_path / "wide-1", tmp_path / "wide-2"])
    )
    assert {group.label: len(group.runs) for group in found} == {
        "lstm": 1,
        "rdn, core_width 16": 2,
        "rdn, core_width 32": 2,
    }


def test_an_environment_s_options_are_named_as_they_are_typed(runs, tmp_path):
    for name, changes in {"none": [], "two": ["sticky=0.25", "frame_skip=2"]}.items():
        shutil.copytree(runs / "rdn-1", tmp_path / name)
        meta = json.loads((tmp_path / name / "meta.json").read_text())
        meta["args"]["env_options"] = changes
        (tmp_path / name / "meta.json").write_text(json.dumps(meta))
    found = grouped(open_runs([tmp_path / "none", tmp_path / "two"]))
    assert [group.label for group in found] == [
        "rdn, env_options none",
        "rdn, env_options sticky=0.25 frame_skip=2",
    ]


def test_a_score_is_of_most_games_and_named_by_the_rules_they_had(tmp_path):
    many = evaluation("rdn", [2.0] * 10)
    few = evaluation("rdn", [9.0] * 9)
    older = evaluation("rdn", [9.0] * 50, agent_steps=128)
    capped = evaluation("rdn", [8.0], max_frames=100)
    trained = evaluation("rdn", [7.0], rules={"sticky": 0.25, "full_action_set": True})
    foreign = evaluation("rdn", [6.0], protocol="mine")
    half_an_hour = evaluation("rdn", [5.0], protocol="noop30", max_frames=108_000)
    run = short_run(tmp_path, "run", many, few, older, capped, trained, foreign, half_an_hour)
    # A file name says neither rules nor which is later.
    trained.save(run / "evaluations" / "step_000000000256_zzz.json")
    many.save(run / "evaluations" / "step_000000000256_aaa.json")
    (run / "evaluations" / many.file_name()).unlink()
    found = {
        one.protocol: one.spread("full_game").mean for one in scores(grouped(open_runs([run])))
    }
    assert found == {
        "full-game": 2.0,
        "full-game, cut after 100 frames": 8.0,
        "full-game, sticky 0.25": 7.0,
        "mine": 6.0,
        "noop30": 5.0,
    }


def test_groups_trained_under_two_protocols_are_told_apart(tmp_path):
    runs = [
        short_run(tmp_path, f"{name}-{protocol}", played, env=env, protocol=protocol)
        for env, name in {"ALE/Pong-v5": "Pong", "Qbert": "Qbert"}.items()
        for protocol, score in {"full-game": 3.0, "machado": 5.0}.items()
        for played in [evaluation("rdn", [score], env=name)]
    ]
    again = short_run(tmp_path, "again", evaluation("rdn", [4.0]), seed=2)
    found = scores(grouped(open_runs([*runs, again])))
    kinds = [
        f"rdn, protocol {protocol}, full-game, argmax" for protocol in ("full-game", "machado")
    ]
    assert sorted(score.kind for score in found) == sorted(2 * kinds)
    assert sorted(over_games(found)) == kinds
    assert {s.env: len(s.tested) for s in found if s.kind == kinds[0]} == {"Pong": 2, "Qbert": 1}


def test_wrapped_scores_and_cut_games_are_said_beside_the_score(tmp_path):
    plain = evaluation("rdn", [1.0])
    odd = [
        plain.episodes[0]._replace(cut=True),
        plain.episodes[0]._replace(life_wraps=(1,), episode=1),
    ]
    both = replace(plain, episodes=tuple(odd), action_mode="sampled", max_frames=64)
    run = short_run(tmp_path, "run", plain, both)
    reported(tmp_path / "out", run)
    text = (tmp_path / "out" / "report.md").read_text()
    kind = "† rdn, full-game, cut after 64 frames, sampled, run: "
    assert f"{kind}1 of 2 games were cut after 64 emulator frames." in text
    assert f"{kind}the score counter passed 999,999 and began again in 1 of 2 games" in text
    assert "| 1.00 ± 0.00 † | 1.00 ± 0.00 † | episodes |" in text
    assert "| rdn | full-game, argmax | 256 | 1.00 | 1.00 | - |" in text


def test_one_seed_a_game_has_no_interval(tmp_path):
    seeds = [
        short_run(tmp_path, f"{core}-{env}-{seed}", played, env=env, seed=seed, core=core)
        for env, core, seed in [
            *(("Pong", "rdn", 1), ("Pong", "rdn", 2), ("Qbert", "rdn", 1)),
            *(("Pong", "lstm", 1), ("Qbert", "lstm", 1)),
        ]
        for played in [evaluation(core, [float(seed)], env=env)]
    ]
    page = reported(tmp_path / "out", *seeds)
    means = {row[0]: row[3] for row in page.rows if len(row) == 5 and "full-game" in row[0]}
    assert re.fullmatch(r"0\.\d+ \(0\.\d+ to 0\.\d+\)", means["rdn, full-game, argmax"])
    assert re.fullmatch(r"0\.\d+ \(-\)", means["lstm, full-game, argmax"])
    assert "(-: no game has two seeds)" in (tmp_path / "out" / "report.md").read_text()


def test_what_bars_leave_out_is_said(tmp_path):
    runs = [
        short_run(tmp_path, "rdn", evaluation("rdn", [3.0])),
        short_run(tmp_path, "wide", evaluation("rdn", [9.0]), core_width=64),
        short_run(tmp_path, "lstm", evaluation("lstm", [2.0]), core="lstm"),
        short_run(tmp_path, "q", evaluation("rdn", [3.0], env="Qbert"), env="Qbert"),
        short_run(tmp_path, "z", evaluation("lstm", [0.0], env="Qbert"), env="Qbert", core="lstm"),
    ]
    reported(tmp_path / "out", *runs, options=("--compare", "rdn:lstm", "lstm:srwm"))
    text = (tmp_path / "out" / "report.md").read_text()
    zero = "Left out, as lstm scores 0 there: Qbert (these runs, full-game, argmax)."
    group = "Left out, as another group of the core comes first: rdn, core\\_width 64."
    assert "1 of 1 game better" in text and zero in text and group in text
    assert "lstm over srwm: no game has a test score of both to compare.\n" in text


def test_over_several_games_there_are_profiles_and_probabilities(tmp_path):
    """Pong: 21 and 2 against 5; Qbert: one tie. Of three runs of four above a human on Pong."""
    runs = [
        short_run(tmp_path, f"{core}-{env}-{seed}", played, env=env, core=core, seed=seed)
        for core, env, seed, score in [
            *(("rdn", "Pong", 1, 21.0), ("rdn", "Pong", 2, 2.0), ("rdn", "Qbert", 1, 7.0)),
            *(("lstm", "Pong", 1, 5.0), ("lstm", "Qbert", 1, 7.0)),
        ]
        for played in [evaluation(core, [score], env=env)]
    ]
    page = reported(tmp_path / "out", *runs)
    (row,) = (row for row in page.rows if row[:1] == ["rdn over lstm"])
    assert row[1:3] == ["full-game, argmax", "2"]
    assert row[3] == "0.500 (0.250 to 0.750)"  # (1/2 + 1/2) / 2; Pong's runs drawn alike
    drawing = (tmp_path / "out" / "report_figures" / "profiles.svg").read_bytes()
    assert {"rdn, full-game, argmax", "lstm, full-game, argmax"} <= set(words_of(drawing))
    text = (tmp_path / "out" / "report.md").read_text()
    above = "Above a human: lstm, full-game, argmax: 0%; rdn, full-game, argmax: 25%."
    assert above in text


def test_a_print_cuts_no_wide_table(page):
    style = (page / "report.html").read_text().split("@media print")[1].split("</style>")[0]
    assert re.search(r"\.wide \{[^}]*overflow: visible", style)
    assert "overflow-wrap: anywhere" in style


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        ({"git": "x", "machine": ["x"]}, ("-", "? cores")),
        ({"git": {"commit": 5}, "machine": {"gpus": 5}}, ("-", "? cores")),
        ({"git": {"commit": "abc", "is_dirty": True}}, ("abc (changed)", "2 cores, H100")),
    ],
)
def test_where_a_run_comes_from_may_be_unknown(about, shown, tmp_path):
    run = short_run(tmp_path, "run")
    meta = json.loads((run / "meta.json").read_text())
    meta |= {"machine": {"cores": 2, "gpus": ["H100"]}} | about
    (run / "meta.json").write_text(json.dumps(meta))
    rows = [row for row in reported(tmp_path / "out", run).rows if row[0] == "run"]
    assert (rows[1][-1], rows[3][-1]) == shown


def test_runs_of_one_name_are_told_apart_by_where_they_are(tmp_path):
    runs = [short_run(tmp_path / where, "rdn") for where in ("here", "there")]
    logs = runs[0] / "logs.csv"
    logs.write_bytes(logs.read_bytes().replace(b"_time", b"_when", 1))
    page = reported(tmp_path / "out", *runs)
    speed = {row[0]: row[3] for row in page.rows if row[0] in ("here/rdn", "there/rdn")}
    assert speed["here/rdn"] == "-" and float(speed["there/rdn"]) >= 0
    words = words_of((tmp_path / "out/report_figures/throughput.svg").read_bytes())
    assert {"here/rdn", "there/rdn"} <= set(words)


def run_with(**columns) -> Run:
    return Run("run", Path("run"), {"args": {}}, columns, {}, (), 4)


def test_what_is_no_number_is_a_gap():
    run = run_with(step=[1, 2, 3, 4], loss=[0.5, None, "x", 10**400])
    np.testing.assert_array_equal(numbers(run, "loss"), [0.5, np.nan, np.nan, np.nan])


def test_hours_leave_out_pauses():
    times = [0.0, 10.0, 20.0, 30.0, 9030.0, 9040.0]  # stopped, and resumed much later
    run = run_with(step=list(range(6)), _time=times)
    np.testing.assert_allclose(hours(run) * 3600, [0, 10, 20, 30, 40, 50])
    slow = run_with(step=[1, 2, 3], _time=[0.0, 3600.0, 7200.0])  # slow is no pause
    np.testing.assert_allclose(hours(slow), [0, 1, 2])


def test_a_band_is_where_all_seeds_are():
    rising = Curve(np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    short = Curve(np.array([2.0, 6.0]), np.array([4.0, 4.0]))
    together = band([rising, short])
    assert (together.x[0], together.x[-1]) == (2.0, 6.0)
    np.testing.assert_allclose(together.mean, (together.x + 4) / 2)
    np.testing.assert_allclose(together.low, np.minimum(together.x, 4))
    np.testing.assert_allclose(together.high, np.maximum(together.x, 4))
    late = Curve(np.array([20.0, 30.0]), np.array([0.0, 0.0]))
    assert band([rising, late]) is None and band([]) is None


def test_relative_improvements_are_of_the_others_size():
    ours = {"a": 150.0, "b": 5.0, "c": -5.0, "d": 1.0, "e": 1.0}
    other = {"a": 100.0, "b": 10.0, "c": -10.0, "d": 0.0}
    assert relative_improvements(ours, other) == {"a": 50.0, "b": -50.0, "c": 50.0}


def test_the_papers_bars_are_as_its_text_says():
    """RDN matches or outperforms LT on all but two of 20 games; LSTM on 12 at 50 M steps."""
    rdn, lt, lstm = (paper_scores(core, 50_000_000) for core in ("rdn", "lt", "lstm"))
    over_lt = relative_improvements(rdn, lt)
    assert sum(value >= 0 for value in over_lt.values()) == 18 and len(over_lt) == 20
    over_lstm = relative_improvements(rdn, lstm)
    assert sum(value > 0 for value in over_lstm.values()) == 12


def test_lines_differ_in_more_than_colour():
    styles = line_styles([str(index) for index in range(28)])
    looks = {tuple(style.values()) for style in styles.values()}
    assert len(looks) == 28
    in_grey = [(s["linestyle"], s["marker"]) for s in styles.values()]
    assert len(set(in_grey[:8])) == 8


def test_what_runs_are_called_cannot_break_the_page():
    name = 'a<b>&"|c'
    blocks = [Table("t", ["run", "x"], [[name, "1"]]), Links([(name, f"runs/{name}/clip.mp4")])]
    page = Page(to_html(name, blocks))
    assert page.rows[1] == [name, "1"] and page.open == []
    assert page.links == ["runs/a%3Cb%3E%26%22%7Cc/clip.mp4"]
    assert r"| a\<b>&\"\|c | 1 |".replace('\\"', '"') in to_markdown(name, blocks)


def test_what_run_folders_are_called_is_drawn_as_it_is(tmp_path):
    plain = [r"a$\foo$b", r"a$\frac$", r"a\$b$", "_a"]
    runs = [short_run(tmp_path, name) for name in (*plain, "a\x01b", os.fsdecode(b"c\xffd"))]
    for run in runs:
        (run / "clips").mkdir()
        (run / "clips" / "clip.mp4").write_bytes(b"")
    page = reported(tmp_path / "report", *runs)
    drawn = words_of((tmp_path / "report/report_figures/throughput.svg").read_bytes())
    for shown in (*plain, "a?b", "c?d"):
        assert any(row[:1] == [shown] for row in page.rows)
        assert shown in drawn
    links = [os.fsdecode(unquote_to_bytes(link)) for link in page.links if "/clips/" in link]
    assert links == [f"../{run.name}/clips/clip.mp4" for run in runs]


def test_every_series_of_bars_looks_different():
    series = {f"_series ${number}$": {"a$b$": float(number)} for number in range(15)}
    drawing = improvements(series, "rdn", "lstm")
    assert {*series, "a$b$"} <= set(words_of(drawing))
    fills = set(re.findall(r"fill: (url\(#\w+\)|#\w+)", drawing.decode()))
    assert len(fills) == 15  # white, and plain black is not written


def test_reporting_twice_gives_the_same_files(page, runs):
    before = {path: path.read_bytes() for path in page.rglob("*") if path.is_file()}
    assert report.main([*(str(runs / name) for name in RUNS), "--out", str(page)]) == 0
    assert {path: path.read_bytes() for path in page.rglob("*") if path.is_file()} == before
    assert not [path for path in before if path.name.startswith(".")]
