"""What a run leaves on disk: its folder, log, checkpoints and TensorBoard scalars."""

from fastweights.records.log_table import read_logs
from fastweights.records.metrics import Metrics
from fastweights.records.run_folder import (
    RunFolder,
    RunFolderError,
    check_xpid,
    claim_xpid,
    read_meta,
    runs_near,
)
from fastweights.records.tensorboard import Scalars

__all__ = [
    "Metrics",
    "RunFolder",
    "RunFolderError",
    "Scalars",
    "check_xpid",
    "claim_xpid",
    "read_logs",
    "read_meta",
    "runs_near",
]
