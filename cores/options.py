"""The core's own options, as every command has them: `--core-layers 4`, ..."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fastweights.cores import CORES, core_kind

_PREFIX = "core_"
_SIZES = {"layers", "width", "heads", "feedforward"}


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
    core_recurrent_feature_map: str | None = None
    """Of the recurrent keys of Delta RNN and Delta LSTM (default: as the other keys)."""
    core_input_map: str | None = None
    """The self-referential matrix's, of what it reads: softmax as in the published agents, or
    identity, with which it remembers."""
    core_normaliser: str | None = None
    """The linear Transformer's: none, or key_sum, which divides outputs by their weights' sum."""
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


def of_core(core: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """As options of a command, those that the core has. Raises `ValueError` for an unknown core."""
    known = core_kind(core).options()
    return {f"{_PREFIX}{name}": value for name, value in wanted.items() if name in known}


def preset_of_core(core: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset gives to the core: all that `of_core` does, but no other sizes to one that was
    asked for by its size, as `rdn_large` is."""
    sizes = _SIZES if is_named_by_size(core) else set()
    return of_core(core, {name: value for name, value in wanted.items() if name not in sizes})


def is_named_by_size(core: str) -> bool:
    """Whether the registry has the same memory before it, in other sizes."""
    kind = core_kind(core)
    same = (kind.systematic_name, kind.equation)
    alike = (name for name, k in CORES.items() if (k.systematic_name, k.equation) == same)
    return next(alike) != core
