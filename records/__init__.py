"""What a run leaves on disk: its folder, log, checkpoints and TensorBoard scalars."""

from fastweights.records.checkpoint_folder import CheckpointFolder, Found, holds_checkpoints
from fastweights.records.checkpoints import (
    CheckpointError,
    fitting,
    load,
    read,
    save,
    save_or_warn,
)
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
    "CheckpointError",
    "CheckpointFolder",
    "Found",
    "Metrics",
    "RunFolder",
    "RunFolderError",
    "Scalars",
    "check_xpid",
    "claim_xpid",
    "fitting",
    "holds_checkpoints",
    "load",
    "read",
    "read_logs",
    "read_meta",
    "runs_near",
    "save",
    "save_or_warn",
]
