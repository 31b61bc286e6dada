"""Whatever stands in a file or on a command line, it works or it is one line and exit code 2.

Never another exception, never a file outside of the run folder, and nothing that a file says runs.
The long searches are marked `faults`.
"""

import io
import json
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_evaluation_file import WRAPPED, evaluation

from agents.learner import Learner, LearnerConfig
from agents.network import Network
from launch import evaluate, replay, report, watch
from launch.agent_export import write_export
from launch.checkpoint_folder import CheckpointFolder
from launch.checkpoints import load, read, save
from launch.command_line import parse, peek
from launch.evaluation_file import evaluations_in, write_overview
from launch.failures import one_line_errors, user_input
from launch.log_table import LogTable, read_logs
from launch.metrics import Metrics
from launch.options import RunOptions, check
from launch.reports import sections
from launch.reports.document import to_html, to_markdown
from launch.reports.runs import grouped, open_run
from launch.run_folder import RunFolder, read_meta
from launch.saved_agent import fitting, open_agent, pack, unpack
from launch.schedules import Plan
from launch.sequence_options import SequenceOptions, preset
from launch.sequence_options import check as check_sequences
from launch.sequence_run import saved_options
from launch.torchbeast_flags import translate
from tasks import ListOps

OPTIONS = RunOptions(env="Catch", core="lstm", core_width=8)
SHAPE, ACTIONS = (50,), 3


def searched(test: Callable, short: int, long: int, *inputs: st.SearchStrategy) -> list[Callable]:
    """A test with `short` examples, and the same with `long` ones under the marker.

    Always the same examples, and none remembered from elsewhere.
    """
    found = [
        settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(given(*inputs)(test))
        for examples in (short, long)
    ]
    return [found[0], pytest.mark.faults(found[1])]


numbers = st.one_of(
    st.integers(-2, 20),
    st.sampled_from([2**31, -(2**63), 2**63, 10**30, 10**400]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -1.0, 0.5, float("nan"), float("inf")]),
)
texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["lstm", "rdn", "Catch", "full", "../../x", "/x", "a\nb", "a\0b", "", "1", "²"]
    ),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tensors = st.sampled_from(
    [torch.zeros(()), torch.ones(3), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(0)]
)


class Canary:
    """A pickle that would create a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@contextmanager
def sandbox() -> Iterator[Path]:
    """A run folder; whatever appears beside it, a canary's file for one, fails the test."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "runs" / "run"
        run.mkdir(parents=True)
        yield run
        beside = {path.name for path in (*Path(place).iterdir(), *run.parent.iterdir())}
        assert beside <= {"runs", "run", "latest"}, beside


def canary_of(run: Path) -> Canary:
    return Canary(run.parent / "canary")


def command(action: Callable[[], Any]) -> int:
    """What a command that does `action` would end with; its error is one line."""

    @one_line_errors
    def main() -> None:
        with user_input():
            action()

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            main()
    except SystemExit as exit_:
        assert exit_.code == 2
        line = said.getvalue().splitlines()[-1]
        assert line.startswith("error: ") and len(line) > len("error: ")
        return 2
    return 0


def changed(content: Any, path: list, value: Any) -> Any:
    """`content` with what lies at `path` replaced; without it where `value` is GONE."""
    content = deepcopy(content)
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


GONE = object()
values = st.one_of(st.just(GONE), plain)


def paths(content: Any, depth: int = 3) -> list[list]:
    """The ways to everything in nested dicts and lists, `depth` names deep."""
    if not depth or not isinstance(content, dict | list):
        return []
    names = list(content) if isinstance(content, dict) else range(min(len(content), 2))
    return [way for n in names for way in ([n], *([n, *on] for on in paths(content[n], depth - 1)))]


# Checkpoints


@cache
def payload() -> dict[str, Any]:
    learner = Learner(Network(OPTIONS.network(SHAPE, ACTIONS)), OPTIONS.learner)
    for weight in learner.network.parameters():
        weight.grad = torch.ones_like(weight)
    learner.optimizer.step()
    metrics = Metrics(lambda row: None)
    metrics.add_game(1.0, 2, 3)
    stats = {"metrics": metrics.state_dict()}
    return pack(OPTIONS, learner, stats) | {"step": 40, "score": 1.0}


@cache
def checkpoint() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(payload(), Path(folder) / "a.pt")
        return (Path(folder) / "a.pt").read_bytes()


def open_everything(run: Path, content: bytes) -> None:
    """Every reader of checkpoints on one file, then a run that goes on from it."""
    (run / "checkpoints").mkdir(exist_ok=True)
    path = run / "checkpoints" / "step_000000000040.pt"
    path.write_bytes(content)
    command(lambda: load(path))
    command(lambda: read(path))
    command(lambda: CheckpointFolder(run).latest())
    command(lambda: CheckpointFolder(run).best_score)
    command(lambda: restored(open_agent(run).payload))


def restored(content: dict[str, Any]) -> None:
    learner = Learner(Network(OPTIONS.network(SHAPE, ACTIONS)), OPTIONS.learner)
    metrics = Metrics(lambda row: None)
    with fitting(Path("checkpoint")):
        unpack(content, learner)
        metrics.load_state_dict(content["stats"]["metrics"])
    for weight in learner.network.parameters():
        weight.grad = torch.ones_like(weight)
    learner.optimizer.step()
    metrics.log({"step": learner.steps})


def _checkpoint_bytes(data):
    content = bytearray(checkpoint())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with sandbox() as run:
        open_everything(run, bytes(content[: data.draw(st.integers(0, len(content)))]))


def repacked(content: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """A checkpoint's archive with members changed, and their checksums right."""
    old, new = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            member = change(name, old.read(name))
            if member is not None:
                archive.writestr(name, member)
    return new.getvalue()


def _checkpoint_members(data):
    with sandbox() as run:
        names = [
            name.split("/", 1)[1] for name in zipfile.ZipFile(io.BytesIO(checkpoint())).namelist()
        ]
        which = data.draw(st.sampled_from(["data.pkl", *names]))
        how = data.draw(
            st.sampled_from(["gone", "canary", "bytes", "shorter", "longer", "flipped"])
        )
        some = data.draw(st.binary(max_size=40))

        def change(name: str, member: bytes) -> bytes | None:
            if not name.endswith(which):
                return member
            where = data.draw(st.integers(0, max(0, len(member) - 1)))
            return {
                "gone": None,
                "canary": pickle.dumps({"trap": canary_of(run)}, protocol=2),
                "bytes": some,
                "shorter": member[:where],
                "longer": member + some,
                "flipped": member[:where] + some + member[where + len(some) :],
            }[how]

        open_everything(run, repacked(checkpoint(), change))


def _checkpoint_values(data):
    content = payload()
    way = data.draw(st.sampled_from(paths(content)))
    value = data.draw(st.one_of(values, tensors))
    with sandbox() as run:
        if data.draw(st.booleans()) and value is not GONE:
            value = [value, canary_of(run)] if data.draw(st.booleans()) else value
        written = io.BytesIO()
        head = {"format": "fastweights-checkpoint", "version": 1}
        torch.save(head | changed(content, way, value), written)
        open_everything(run, written.getvalue())


test_checkpoint_bytes, test_checkpoint_bytes_longer = searched(
    _checkpoint_bytes, 15, 200, st.data()
)
test_checkpoint_members, test_checkpoint_members_longer = searched(
    _checkpoint_members, 15, 200, st.data()
)
test_checkpoint_values, test_checkpoint_values_longer = searched(
    _checkpoint_values, 25, 250, st.data()
)


# Options


def _agent_options(data):
    names = [f.name for kind in (RunOptions, LearnerConfig) for f in fields(kind)]
    chosen = st.dictionaries(st.sampled_from(names) | texts, plain, max_size=4)
    flat = OPTIONS.to_dict() | data.draw(chosen)

    def build() -> None:
        options = RunOptions.from_dict(flat)
        check(options)
        with torch.device("meta"):
            Network(options.network(SHAPE, ACTIONS))
        assert RunOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options

    command(build)
    command(lambda: RunOptions.from_dict(data.draw(plain)))


def _sequence_options(data):
    whole = preset("small", "rdn", ListOps()).to_dict()
    way = data.draw(st.sampled_from(paths(whole)))
    flat = changed(whole, way, data.draw(values))

    def build() -> None:
        options = SequenceOptions.from_dict(flat)
        check_sequences(options)
        with torch.device("meta"):
            options.build()

    command(build)


test_agent_options, test_agent_options_longer = searched(_agent_options, 60, 600, st.data())
test_sequence_options, test_sequence_options_longer = searched(
    _sequence_options, 40, 1000, st.data()
)


# A run folder's other files


@cache
def run_folder() -> Path:
    """A finished run as a report reads it."""
    place = Path(tempfile.mkdtemp())
    run = RunFolder.create(place, "run", OPTIONS.to_dict())
    for step in (20, 40):
        run.log({"step": step, "episode_returns": (1.0, -1.0), "agent_steps_per_second": 2.0})
    run.finish()
    for step, game in enumerate(("UpNDown", "Pong")):
        kept = evaluation(*WRAPPED, env=game, agent_steps=step)
        kept.save(run.path / "evaluations" / kept.file_name())
    return run.path


def use_folder(run: Path) -> None:
    """All that reads or goes on with a run folder's small files."""

    def reported() -> None:
        runs = [open_run(run)]
        grouped(runs)
        sections.overview(runs), sections.configurations(runs), sections.links(runs, run)

    def evaluated() -> None:
        for one in evaluations_in(run).values():
            one.summary(), one.scores(unwrapped=True)
        write_overview(run)

    def resumed() -> None:
        folder = RunFolder.open(run)
        folder.log({"step": 60})
        folder.rewind(40)
        folder.finish()

    for action in (reported, evaluated, resumed):
        command(action)
    command(lambda: read_meta(run))
    command(lambda: read_logs(run))
    command(lambda: saved_options(run, "list_ops"))
    command(lambda: replay.read_hashes_of(run))
    command(lambda: LogTable(run).rewind(20))


def mangled(data: st.DataObject, content: bytes) -> bytes:
    """Bytes like `content`: cut, flipped, spliced, or JSON with a value replaced."""
    if content.startswith(b"{") and data.draw(st.booleans()):
        whole = json.loads(content)
        way = data.draw(st.sampled_from(paths(whole, 4)))
        return json.dumps(changed(whole, way, data.draw(values))).encode()
    how = data.draw(st.sampled_from(["cut", "splice", "all"]))
    start = data.draw(st.integers(0, len(content)))
    some = data.draw(
        st.binary(max_size=30)
        | st.sampled_from(
            [b"[" * 100_000, b'{"a":' * 100_000, b"x" * 140_000, b"\0", b"\n", b"(" * 300]
        )
    )
    return {
        "cut": content[:start],
        "splice": content[:start] + some + content[start:],
        "all": some,
    }[how]


def _small_files(data):
    files = [path.relative_to(run_folder()) for path in sorted(run_folder().rglob("*.*"))]
    which = data.draw(st.sampled_from([f for f in files if f.suffix in (".json", ".csv")]))
    with sandbox() as run:
        shutil.copytree(run_folder(), run, dirs_exist_ok=True)
        (run / which).write_bytes(mangled(data, (run / which).read_bytes()))
        use_folder(run)


def _reports(data):
    """Whole reports, drawings included, of a run whose files parse: values, not syntax."""
    with sandbox() as run:
        shutil.copytree(run_folder(), run, dirs_exist_ok=True)
        files = [run / "meta.json", run / "logs.csv", *sorted(run.glob("evaluations/*.json"))]
        which = data.draw(st.sampled_from(files))
        if which.suffix == ".json":
            whole = json.loads(which.read_text())
            way = data.draw(st.sampled_from(paths(whole, 4)))
            which.write_text(json.dumps(changed(whole, way, data.draw(values))))
        else:
            cells = which.read_text().split(",")
            cells[data.draw(st.integers(11, len(cells) - 1))] = str(data.draw(scalars))
            which.write_text(",".join(cells), errors="replace")

        def reported() -> None:
            blocks = sections.build(grouped([open_run(run)]), [("lstm", "lstm")], run)
            to_html("a report", blocks).encode(), to_markdown("a report", blocks).encode()

        command(reported)


def _exports(data):
    with sandbox() as run:
        write_export(payload(), run)
        which = run / data.draw(st.sampled_from(["config.json", "model.safetensors"]))
        which.write_bytes(mangled(data, which.read_bytes()))
        command(lambda: open_agent(run))


test_small_files, test_small_files_longer = searched(_small_files, 30, 300, st.data())
test_reports, test_reports_longer = searched(_reports, 4, 300, st.data())
test_exports, test_exports_longer = searched(_exports, 20, 300, st.data())


# Command lines

FLAGS = [f"--{f.name.replace('_', '-')}" for k in (RunOptions, LearnerConfig) for f in fields(k)]


FLAGS_WITH_VALUES = st.lists(
    st.tuples(st.sampled_from([*FLAGS, "--preset"]), scalars.map(str)), max_size=4
)


def _training_command(pairs):
    arguments = [part for pair in pairs for part in pair]

    def plan() -> None:
        rewritten, _ = translate(arguments)
        peek(rewritten)
        Plan(replace(parse(rewritten).run, device="cpu"))

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            with user_input():
                plan()
        except SystemExit as exit_:
            assert exit_.code == 2
        except ValueError as error:
            assert str(error)


def _other_commands(main, run, arguments):
    with tempfile.TemporaryDirectory() as folder:
        place, said = f"{folder}/{run}", io.StringIO()
        with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as exit_:
            main([place, *arguments])
        assert exit_.value.code == 2 and "Traceback" not in said.getvalue()
        assert not any(Path(folder).iterdir())


test_training_command, test_training_command_longer = searched(
    _training_command, 12, 100, FLAGS_WITH_VALUES
)
test_other_commands, test_other_commands_longer = searched(
    _other_commands,
    12,
    100,
    st.sampled_from([evaluate.main, watch.main, report.main, replay.main]),
    texts.filter(lambda text: text not in ("", "1") and "\0" not in text),
    st.lists(scalars.map(str), max_size=2),
)
