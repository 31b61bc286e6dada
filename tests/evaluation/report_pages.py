"""Runs to report on, and a parser of the reports' pages."""

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

from fastweights.evaluation.evaluation_file import Evaluation, PlayedGame
from fastweights.launch import atari, report
from fastweights.records.run_folder import RunFolder
from fastweights.training.options import RunOptions

FAST = ["--num-threads", "1", "--num-envs", "2", "--batch-size", "2", "--unroll-length", "16"]
# Games are cut after 16 agent steps, so that some finish.


GAME = ["--env", "Pong", "--env-options", "max_frames=64", "--stem", "shallow"]


RUNS = {"rdn-1": ("rdn", 1), "rdn-2": ("rdn", 2), "lstm-1": ("lstm", 1)}


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


def short_run(
    folder: Path, name: str, *played: Evaluation, any_ended: bool = True, **options
) -> Path:
    """Make a run folder as training would leave it; `any_ended`: whether any game ended."""
    recipe = RunOptions(**{"env": "Pong", "core": "rdn"} | options)
    run = RunFolder.create(folder, "new", recipe.to_dict())
    for step in (128, 256):
        counted = {"recent_full_game_return": 1.0 if any_ended else None}
        counted |= {"games": step if any_ended else 0}
        run.log({"step": step, "agent_steps_per_second": 2.0, **counted})
    run.finish()
    for one in played:
        one.save(run.path / "evaluations" / one.file_name())
    return run.path.rename(folder / name)


def four_options(number: int) -> dict[str, int]:
    """Return more options than a label can hold, with values that depend on `number`."""
    names = ("core_layers", "core_heads", "core_width", "core_feedforward")
    return dict.fromkeys(names, number)


def three_runs(folder: Path) -> Path:
    """Return the folder of three short runs on Pong, with test scores of 2, 4 and 10."""
    small = {"rdn": ["--core-width", "16", "--core-heads", "2"], "lstm": ["--core-width", "16"]}
    for (name, (core, seed)), score in zip(RUNS.items(), (2.0, 4.0, 10.0), strict=True):
        recipe = ["--core", core, *small[core], "--seed", str(seed), "--total-steps", "256"]
        where = ["--savedir", str(folder), "--xpid", name]
        assert atari.main([*GAME, *recipe, *FAST, *where]) == 0
        played = evaluation(core, [score - 1, score + 1])
        played.save(folder / name / "evaluations" / played.file_name())
    return folder


class Page(HTMLParser):
    """Collects a page's links, loaded files, ids and table cells."""

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
    """Write a report on `runs` into `folder` and return its page."""
    assert report.main([*map(str, runs), "--out", str(folder), *options]) == 0
    return Page((folder / "report.html").read_text())


def words_of(drawing: bytes) -> list[str]:
    texts = ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in texts]
