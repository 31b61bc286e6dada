"""A run's numbers in TensorBoard's files: every finite number of a row, under grouped names."""

import math
import sys
import warnings
from pathlib import Path
from typing import Any

from launch.stages import STAGES

# TensorBoard's grouped names; a number under any other column appears as `other/<column>`.
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
    "valid_sequence_accuracy": "accuracy/held_out_sequences",
    "valid_answer_accuracy": "accuracy/held_out_answers",
    "total_loss": "loss/total",
    "pg_loss": "loss/policy_gradient",
    "baseline_loss": "loss/baseline",
    "entropy_loss": "loss/entropy",
    "entropy": "policy/entropy",
    "policy_lag": "policy/lag_updates",
    "learning_rate": "optimiser/learning_rate",
    "gradient_norm": "optimiser/gradient_norm",
    "updates": "optimiser/updates",
    "agent_steps_per_second": "throughput/agent_steps_per_second",
    "learner_queue_size": "throughput/learner_queue_size",
    **{f"seconds_{stage}": f"seconds/{stage}" for stage in STAGES},
}
_X_AXIS = ("step", "_tick", "_time")


class Board:
    """Event files in `folder`. `resumed_at`: the step of the checkpoint a run goes on from.

    TensorBoard then hides what was logged beyond it.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        self._writer = _open_writer(folder, resumed_at)

    def write(self, row: dict[str, Any]) -> None:
        """Adds the row's finite numbers at its `step`. A failing disk ends this with a warning."""
        if self._writer is None:
            return
        try:
            for name, value in row.items():
                if name not in _X_AXIS and _is_finite_number(value):
                    tag = TAGS.get(name, f"other/{name}")
                    self._writer.add_scalar(tag, value, global_step=row["step"])
        except OSError as error:  # logs.csv holds the same numbers: a run is not lost for a copy
            self._writer = None
            print(f"warning: no more TensorBoard scalars: {error}", file=sys.stderr)

    def close(self) -> None:
        """Writes out what is still held."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _open_writer(folder: Path, resumed_at: int | None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils.tensorboard import SummaryWriter  # slow to import, so only where wanted
    # Steps up to and including the checkpoint's were logged before it was saved.
    purge_step = None if resumed_at is None else resumed_at + 1
    return SummaryWriter(str(folder), purge_step=purge_step, flush_secs=10)


def _is_finite_number(value: Any) -> bool:
    if isinstance(value, str | tuple | list | bool) or value is None:
        return False
    return math.isfinite(value)
