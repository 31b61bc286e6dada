"""Random changes of a run's small files or an export work, or give one line and exit code 2.

There is no other exception, no file outside the run folder, and no code from a file runs.
"""

import json
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from fuzzing import (
    ACTIONS,
    OPTIONS,
    SHAPE,
    changed,
    command,
    paths,
    payload,
    sandbox,
    scalars,
    searched,
    values,
)
from hypothesis import strategies as st

from fastweights.agents.network import Network
from fastweights.evaluation.evaluation_file import evaluations_in, write_overview
from fastweights.evaluation.model_cards import model_card
from fastweights.evaluation.reports import sections
from fastweights.evaluation.reports.document import to_html, to_markdown
from fastweights.evaluation.reports.runs import grouped_runs, open_run
from fastweights.experiments.sequences.saved import saved_sequence_options
from fastweights.launch import replay
from fastweights.records.exports import AGENT_EXPORT
from fastweights.records.log_table import LogTable, read_logs
from fastweights.records.run_folder import RunFolder, read_meta
from fastweights.training.hashes import Hashed, Hashes, write_hashes
from fastweights.training.saved_agent import open_agent, take_weights
from tests.evaluation.test_evaluation_file import WRAPPED, evaluation


@cache
def run_folder() -> Path:
    """Return a finished run that reports can read."""
    place = Path(tempfile.mkdtemp())
    run = RunFolder.create(place, "run", OPTIONS.to_dict())
    for step in (20, 40):
        run.log({"step": step, "episode_returns": (1.0, -1.0), "agent_steps_per_second": 2.0})
    run.finish()
    updates = tuple(Hashed(update, 10 * update, "a" * 32, "b" * 32) for update in (1, 2))
    write_hashes(run.path, Hashes(updates, {"threads": "1"}))
    for step, game in enumerate(("UpNDown", "Pong")):
        kept = evaluation(*WRAPPED, env=game, agent_steps=step)
        kept.save(run.path / "evaluations" / kept.file_name())
    return run.path


def use_folder(run: Path) -> None:
    """Call everything that reads or resumes from a run folder's small files."""

    def reported() -> None:
        runs = [open_run(run)]
        groups = grouped_runs(runs)
        sections.overview(runs), sections.configurations(groups), sections.links(runs, run)

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
    command(lambda: saved_sequence_options(run, "list_ops"))
    command(lambda: replay.read_hashes_of(run))
    command(lambda: LogTable(run).rewind(20))


def mangled(data: st.DataObject, content: bytes) -> bytes:
    """Return bytes that resemble `content`: cut, flipped, spliced, or JSON with a changed value."""
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
    """Make whole reports with drawings from files that parse: this changes values, not syntax."""
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
            blocks = sections.report_sections(
                grouped_runs([open_run(run)]), [("lstm", "lstm")], run
            )
            to_html("a report", blocks).encode(), to_markdown("a report", blocks).encode()

        command(reported)


def _exports(data):
    with sandbox() as run:
        AGENT_EXPORT.write(payload(), run, "")
        which = run / data.draw(st.sampled_from(["config.json", "model.safetensors"]))
        which.write_bytes(mangled(data, which.read_bytes()))
        command(lambda: model_card(open_agent(run).payload))
        beginning = replace(OPTIONS, init_from=run)
        command(lambda: take_weights(Network(OPTIONS.network(SHAPE, ACTIONS)), beginning))


test_small_files, test_small_files_longer = searched(_small_files, 30, 300, st.data())
test_reports, test_reports_longer = searched(_reports, 4, 300, st.data())
test_exports, test_exports_longer = searched(_exports, 20, 300, st.data())
