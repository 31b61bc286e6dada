"""The core's own options, as every command has them: `--core-layers 4`, ..."""

from dataclasses import dataclass, fields
from typing import Any

_PREFIX = "core_"


@dataclass(frozen=True, kw_only=True)
class CoreSizes:
    """Abstract: what a command's options begin with. None is the core's published value."""

    core_layers: int | None = None
    """Residual blocks (default: the core's published value, as for all that follow)."""
    core_width: int | None = None
    """Units."""
    core_heads: int | None = None
    """Memories side by side in each layer; must divide the width."""
    core_feedforward: int | None = None
    """Hidden units of each block's feed-forward network."""
    core_feature_map: str | None = None
    """Of keys and queries: softmax and elu_sum normalise them, elu and identity do not."""
    core_version: str | None = None
    """Of the fast network, by the paper's letter: A or B; Delta LSTM: A, B, C or D."""
    core_norm: str | None = None
    """LayerNorm before each branch of a residual block, or after it is added: pre or post."""
    core_window: int | None = None
    """The Transformer's: steps that are attended to (default: 64; sequence tasks: all)."""
    core_positions: str | None = None
    """The Transformer's, counted from the episode's start: sinusoidal or none."""
    core_forget_gate: str | None = None
    """The mLSTM's: sigmoid or exponential."""
    core_forget_bias: float | None = None
    """The LSTM's, added when weights are drawn; long memories want 1 or more."""

    def core_options(self) -> tuple[tuple[str, Any], ...]:
        """Those of the core's options that differ from its published defaults."""
        names = [field.name for field in fields(self) if field.name.startswith(_PREFIX)]
        given = {name.removeprefix(_PREFIX): getattr(self, name) for name in names}
        return tuple((name, value) for name, value in given.items() if value is not None)
