"""A run's TensorBoard files: every finite number of each row, under grouped names."""

import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fastweights.host import STAGES

# Grouped names in TensorBoard; numbers in any other column appear as `other/<column>`.
TAGS = {
    "mean_episode_return": "returns/full_game_tick",
    "mean_life_return": "returns/life_tick",
    "recent_full_game_return": "returns/full_game_mean",
    "recent_life_return": "returns/life_mean",
    "mean_episode_step": "episodes/agent_steps_tick",
    "recent_game_agent_steps": "episodes/agent_steps_mean",
    "recent_game_emulator_frames": "episodes/emulator_frames_mean",
    "games": "episodes/games",
    "lives": "episodes/lives",
    "valid_loss": "loss/held_out",
    "perplexity": "perplexity/learned",
    "valid_perplexity": "perplexity/held_out",
    "valid_bits_per_byte": "perplexity/held_out_bits_per_byte",
    "valid_sequence_accuracy": "accuracy/held_out_sequences",
    "valid_answer_accuracy": "accuracy/held_out_answers",
    "total_loss": "loss/total",
    "pg_loss": "loss/policy_gradient",
    "baseline_loss": "loss/baseline",
    "entropy_loss": "loss/entropy",
    "policy_lag": "policy/lag_updates",
    "entropy": "policy/entropy_nats",
    "approx_kl": "policy/approx_kl_nats",
    "last_kl": "policy/last_kl_nats",
    "clip_fraction": "policy/clip_fraction",
    "explained_variance": "value/explained_variance",
    "value_target_rms": "value/target_rms",
    "feature_variation": "stem/feature_variation",
    "learning_rate": "optimiser/learning_rate",
    "gradient_norm": "optimiser/gradient_norm",
    "gradient_steps": "optimiser/gradient_steps",
    "updates": "optimiser/updates",
    "positions_per_second": "throughput/tokens_per_second",
    "agent_steps_per_second": "throughput/agent_steps_per_second",
    "cpu_seconds": "throughput/cpu_seconds",
    "learner_queue_size": "throughput/learner_queue_size",
    **{f"seconds_{stage}": f"seconds/{stage}" for stage in STAGES},
}
_X_AXIS = ("step", "_tick", "_time")


_FLUSH_INTERVAL = 10.0  # seconds


class Scalars:
    """Event files in `folder`, written by the caller's thread.

    If writing fails, the scalars end with a warning and the run continues: `logs.csv` has the same
    numbers.

    Records and events are TensorBoard's, but its `EventFileWriter`, and torch's `SummaryWriter`
    around it, are not used. Their thread prints a traceback if the disk is full. It waits by the
    wall clock, so it hangs for an hour if the clock is set back by an hour. File names depend on
    that clock, too, so after such a change TensorBoard would read a resumed run's file first.

    Args:
        folder: created if missing.
        resumed_at: the step of the checkpoint that a run resumes from; TensorBoard hides scalars
            logged beyond it.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        # Imported here because the import is slow.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._records: RecordWriter | None = None
        self._flushed = time.monotonic()
        with self._warning():
            folder.mkdir(parents=True, exist_ok=True)
            self._records = RecordWriter(_new_event_file(folder).open("xb"))
            self._write(file_version="brain.Event:2")
            if resumed_at is not None:
                # Steps up to and including the checkpoint's were logged before the checkpoint.
                begun = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                self._write(step=resumed_at + 1, session_log=begun)
            self._records.flush()

    def write(self, row: dict[str, Any]) -> None:
        """Add the row's finite numbers at its `step`; they are written out every ten seconds."""
        if self._records is None:
            return
        values = [
            self._summary.Value(tag=TAGS.get(name, f"other/{name}"), simple_value=float(value))
            for name, value in row.items()
            if name not in _X_AXIS and _is_finite_number(value)
        ]
        with self._warning():
            self._write(step=row["step"], summary=self._summary(value=values))
            if time.monotonic() - self._flushed > _FLUSH_INTERVAL:
                self._records.flush()
                self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush the files."""
        if self._records is not None:
            with self._warning():
                self._records.close()
            self._records = None

    def _write(self, **what: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **what).SerializeToString())

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            records, self._records = self._records, None
            print(f"warning: no more TensorBoard scalars: {error}", file=sys.stderr)
            if records is not None:
                with suppress(OSError):
                    records.close()


def _new_event_file(folder: Path) -> Path:
    """Return a new file whose name sorts after all others, whatever the clock says.

    TensorBoard reads a folder's files in the order of their names.
    """
    stamps = (path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*"))
    newest = max((int(stamp) for stamp in stamps if stamp.isdigit()), default=0)
    stamp = max(int(time.time()), newest + 1)
    return folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}"


def _is_finite_number(value: Any) -> bool:
    if isinstance(value, str | tuple | list | bool) or value is None:
        return False
    return math.isfinite(value)
