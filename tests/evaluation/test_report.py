"""Reports on real runs: every number on the page agrees with the run folders."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fastweights.evaluation.reports.document import Links, Table, to_html, to_markdown
from fastweights.evaluation.reports.runs import open_run
from fastweights.launch import report
from fastweights.records.log_table import LogTable
from tests.evaluation.report_pages import RUNS, Page, reported, short_run
from tests.launch.test_bad_input import error_of

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def page(runs) -> Path:
    """Return the folder of a report on all three runs."""
    (runs / "rdn-1" / "clips").mkdir()
    (runs / "rdn-1" / "clips" / "a clip.mp4").write_bytes(b"")
    assert report.main([*(str(runs / name) for name in RUNS), "--out", str(runs / "out")]) == 0
    return runs / "out"


def test_the_page_loads_nothing_and_is_well_formed(page):
    text = (page / "report.html").read_text()
    parsed = Page(text)
    assert parsed.open == []
    assert parsed.loaded == ["data:,"]
    assert "<script" not in text and "@import" not in text
    assert len(parsed.ids) == len(set(parsed.ids))
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 4  # learning curves, policy, rdn over lstm, throughput
    used = set()
    for drawing in drawings:
        root = ET.fromstring(drawing)
        title, description = root[0], root[1]
        assert root.get("role") == "img" and title.text and len(description.text) > 20
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        # Text that can be selected.
        assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 5
        used |= set(re.findall(r'(?:url\(|href=")#([^)"]+)', drawing))
    assert used and used <= set(parsed.ids)
    assert {link[1:] for link in parsed.links if link.startswith("#")} <= set(parsed.ids)


def test_the_page_has_the_results_of_the_runs(page, runs):
    rows = Page((page / "report.html").read_text()).rows
    scores = {row[0]: row for row in rows if row[-1] == "21 ± 0"}
    assert scores["rdn"][1:4] == ["256", "3.00 ± 1.00", "2 seeds"]
    assert scores["lstm"][1:4] == ["256", "10.0 ± 1.0", "episodes"]
    normalised = (3 + 20.7) / (14.6 + 20.7)  # of random play and the human tester on Pong
    assert float(scores["rdn"][4]) == pytest.approx(normalised, abs=1e-3)
    assert scores["rdn"][5:] == ["21 ± 0", "21 ± 0"]
    last = open_run(runs / "lstm-1").logs["recent_full_game_return"][-1]
    overview = next(row for row in rows if row[0] == "lstm-1")
    assert overview[1:5] == ["Pong", "lstm", "1", "256"]
    assert float(overview[5].replace(",", "")) == pytest.approx(last, abs=0.06)
    (compared,) = (row for row in rows if row[-1] == "test games")  # returns 1, 3, 3, 5 and 9, 11
    assert compared[:3] == ["Pong", "3", "10"] and compared[5] == "2 and 1"
    assert compared[3:5] == ["-7.00 (-8.50 to -5.50)", "-70 % (-80 % to -60 %)"]
    (head,) = (row for row in rows if row[0] == "run" and "core" in row and "seed" not in row)
    of_core = {row[0]: row[head.index("core")] for row in rows if len(row) == len(head)}
    assert of_core == {"run": "core", "lstm-1": "lstm", "rdn-1, rdn-2": "rdn"}
    assert not any("None" in cell for row in rows for cell in row)


def test_the_markdown_says_the_same_beside_its_figures(page):
    text = (page / "report.md").read_text()
    figures = re.findall(r"\]\((report_figures/[^)]+)\)", text)
    assert len(figures) == 4
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


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1200, 500])  # a desk's and, about, a telephone's
def test_a_browser_shows_every_drawing_without_an_error(width, page, tmp_path):
    """Headless Chromium, offline, gives the sizes from its layout and errors from its console."""
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
    network = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},900"]
    done = subprocess.run(
        [BROWSER, *flags, *network, "--dump-dom", f"file://{tmp_path / 'page.html'}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ":CONSOLE" not in done.stderr
    measured = json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1])
    assert len(measured["sizes"]) == 4
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
        "no log rows yet": [silent],
        "no meta.json": [empty],
        "nowhere": [tmp_path / "nowhere"],
        "such as rdn:lstm": [runs / "rdn-1", "--compare", "rdn"],
        "pairs of different cores": [runs / "rdn-1", "--compare", "lt:lt"],
        "unknown core 'mine'": [runs / "rdn-1", "--compare", "mine:lt:x"],
        "unknown core 'rnd'": [runs / "rdn-1", "--compare", "rnd:lt"],
        "at least one run": [],
        "--out cannot be": [runs / "rdn-1", "--out", runs / "rdn-1" / "logs.csv" / "report"],
    }
    for says, arguments in wrong.items():
        assert says in error_of(report.main, arguments, capsys)


def test_what_is_wider_than_a_telephone_scrolls_by_itself(page):
    text = (page / "report.html").read_text()
    scrolled = re.findall(r'<div class="wide(?: long)?">\s*<(table|svg)', text)
    assert len(scrolled) == text.count("<table") + text.count("<svg") > 4
    style = text.split("</style>")[0]
    assert re.search(r"\.wide \{[^}]*overflow-x: auto", style)
    assert re.search(r"figure svg \{[^}]*min-width: 45rem", style)  # its text stays readable


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


def test_what_runs_are_called_cannot_break_the_page():
    name = 'a<b>&"|c'
    blocks = [Table("t", ["run", "x"], [[name, "1"]]), Links([(name, f"runs/{name}/clip.mp4")])]
    page = Page(to_html(name, blocks))
    assert page.rows[1] == [name, "1"] and page.open == []
    assert page.links == ["runs/a%3Cb%3E%26%22%7Cc/clip.mp4"]
    assert r"| a\<b>&\"\|c | 1 |".replace('\\"', '"') in to_markdown(name, blocks)


def test_a_report_removes_figures_of_an_earlier_one_and_no_other_file(page, tmp_path):
    figures = tmp_path / "report_figures"
    shutil.copytree(page, tmp_path, dirs_exist_ok=True)
    (before,) = figures.glob("improvement-*.svg")
    copy, own = figures / "my-favourite.svg", figures / "improvement-a-b-1.svg"
    shutil.copy(before, copy)
    own.write_text("<svg/>")
    (figures / "learning-9.svg").mkdir()
    run = short_run(tmp_path, "run")  # one core: no comparison
    text = (reported(tmp_path, run), (tmp_path / "report.md").read_text())[1]
    left = {path for path in figures.iterdir() if path.is_file()}
    drawn = {tmp_path / name for name in re.findall(r"\]\((report_figures/[^)]+)\)", text)}
    assert drawn and left == {*drawn, copy, own} and not before.exists()


def test_reporting_twice_gives_the_same_files(page, runs):
    before = {path: path.read_bytes() for path in page.rglob("*") if path.is_file()}
    assert report.main([*(str(runs / name) for name in RUNS), "--out", str(page)]) == 0
    assert {path: path.read_bytes() for path in page.rglob("*") if path.is_file()} == before
    assert not [path for path in before if path.name.startswith(".")]
