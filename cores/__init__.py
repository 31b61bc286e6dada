"""Memories for agents: one interface, one file each, and `CORES` from name to kind.

A new core is one file and two lines here (and an operation in `kernels/` if its recurrence is new).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Integral
from typing import Any

from fastweights.cores.cnn import CNN, CNNConfig
from fastweights.cores.core import Core, detach, unroll_by_steps, unroll_truncated
from fastweights.cores.delta_delta import DeltaDelta
from fastweights.cores.delta_lstm import DeltaLSTM
from fastweights.cores.delta_mlp import DeltaMLP
from fastweights.cores.delta_net import DeltaNet
from fastweights.cores.delta_product import DeltaProduct, DeltaProductConfig, GatedDeltaProduct
from fastweights.cores.delta_rnn import DeltaRNN
from fastweights.cores.e_lstm import ELSTM, ELSTMConfig
from fastweights.cores.elman import Elman, ElmanConfig
from fastweights.cores.fast_weight_core import FastWeightCore
from fastweights.cores.feedforward import Feedforward, FeedforwardConfig
from fastweights.cores.feedforward_gated import FeedforwardGated, GatedConfig
from fastweights.cores.gated_delta_net import GatedDeltaNet
from fastweights.cores.growth import remedy, say_once, unbounded_maps
from fastweights.cores.gru import GRU, GRUConfig
from fastweights.cores.linear_transformer import LinearTransformer, LinearTransformerConfig
from fastweights.cores.lstm import LSTM, LSTMConfig
from fastweights.cores.matrix_lstm import MatrixLSTM, MatrixLSTMConfig
from fastweights.cores.qrnn import QRNN, QRNNConfig
from fastweights.cores.recurrent_delta_net import RecurrentDeltaNet
from fastweights.cores.self_referential import SelfReferential, SelfReferentialConfig
from fastweights.cores.stack import (
    BlocksConfig,
    DeltaRuleConfig,
    FastRecurrentConfig,
    Stack,
    StackConfig,
    VersionedConfig,
)
from fastweights.cores.stack_rnn import StackRNN, StackRNNConfig
from fastweights.cores.transformer import Transformer, TransformerConfig
from fastweights.host.names import did_you_mean, unknown
from fastweights.host.typed_fields import typed


@dataclass(frozen=True)
class CoreKind:
    """How a named core is built, and what it computes."""

    build: Callable[[int, Any], Core]  # (input size, config) -> core
    config: Any  # the defaults, a frozen dataclass
    systematic_name: (
        str  # slow net/update rule/fast net (Irie et al. 2021, appendix D), or what it is
    )
    equation: str
    source: str
    has_fast_weights: bool
    delta_rule: bool = False  # multiplies its state at each step, by what its keys say
    features: int = 256  # of a frame, that the published agent's stem hands to it

    def options(self) -> list[str]:
        """The names of the config's fields."""
        return [field.name for field in fields(self.config)]


def _alone(core: type[Core], name: str, config: Any, **changes: Any) -> CoreKind:
    facts = name, core.equation, core.source
    return CoreKind(core, config, *facts, has_fast_weights=False, **changes)


def _stacked(
    memory: type[FastWeightCore],
    name: str,
    config: type[BlocksConfig] = StackConfig,
    **changes: Any,
) -> CoreKind:
    build, facts = partial(Stack, memory=memory), (name, memory.equation, memory.source)
    flags = {"has_fast_weights": True, "delta_rule": memory.delta_rule}
    return CoreKind(build, config(**changes), *facts, **flags)


CORES: dict[str, CoreKind] = {
    "feedforward": _alone(Feedforward, "Feedforward", FeedforwardConfig()),
    "feedforward_gated": _alone(
        FeedforwardGated, "Feedforward, highway-gated", GatedConfig(), features=320
    ),
    "cnn": _alone(CNN, "Causal CNN", CNNConfig()),
    "elman": _alone(Elman, "Elman network", ElmanConfig()),
    "gru": _alone(GRU, "GRU", GRUConfig()),
    "lstm": _alone(LSTM, "LSTM", LSTMConfig()),
    "e_lstm": _alone(ELSTM, "LSTM, element-wise", ELSTMConfig()),
    "qrnn": _alone(QRNN, "Quasi-RNN", QRNNConfig()),
    "stack_rnn": _alone(StackRNN, "Elman network with stacks", StackRNNConfig()),
    "transformer": _alone(Transformer, "Softmax attention", TransformerConfig()),
    "lt": _stacked(
        LinearTransformer,
        "Feedforward/Sum fast Linear Net",
        LinearTransformerConfig,
        feature_map="elu_sum",
    ),
    "delta_net": _stacked(
        DeltaNet, "Feedforward/Delta fast Linear Net", DeltaRuleConfig, feature_map="elu_sum"
    ),
    "delta_mlp": _stacked(DeltaMLP, "Feedforward/Delta fast MLP", VersionedConfig),
    "delta_delta": _stacked(DeltaDelta, "Feedforward/Delta fast Delta Net", DeltaRuleConfig),
    "rdn": _stacked(RecurrentDeltaNet, "Recurrent/Delta fast Linear Net", DeltaRuleConfig),
    "rdn_large": _stacked(
        RecurrentDeltaNet,
        "Recurrent/Delta fast Linear Net",
        DeltaRuleConfig,
        layers=4,
        width=256,
        heads=8,
    ),
    "delta_rnn": _stacked(DeltaRNN, "Feedforward/Delta fast RNN", FastRecurrentConfig),
    "delta_lstm": _stacked(
        DeltaLSTM, "Feedforward/Delta fast LSTM", FastRecurrentConfig, version="D"
    ),
    "srwm": _stacked(
        SelfReferential, "Self-referential/Delta fast Linear Net", SelfReferentialConfig, heads=8
    ),
    "gated_delta_net": _stacked(
        GatedDeltaNet,
        "Feedforward/Gated delta fast Linear Net",
        DeltaRuleConfig,
        feature_map="elu_sum",
    ),
    "delta_product": _stacked(
        DeltaProduct, "Feedforward/Delta product fast Linear Net", DeltaProductConfig
    ),
    "gated_delta_product": _stacked(
        GatedDeltaProduct, "Feedforward/Gated delta product fast Linear Net", DeltaProductConfig
    ),
    "mlstm": _stacked(MatrixLSTM, "Feedforward/Gated sum fast Linear Net", MatrixLSTMConfig),
}


# Beyond what any machine holds, or what is defined: a mistyped size is a line, not hours.
LARGEST = {
    "layers": 1_000,
    "width": 100_000,
    "heads": 100_000,
    "feedforward": 1_000_000,
    "window": 1_000_000,
    "stacks": 1_000,
    "stack_width": 100_000,
    "stack_depth": 1_000_000,
    "max_write_strength": 2,
    "steps_per_token": 1_000,
}


def core_kind(name: str) -> CoreKind:
    """Looks a core up; an unknown name raises a `ValueError` that lists the known ones."""
    if name not in CORES:
        raise ValueError(unknown("core", name, CORES))
    return CORES[name]


def build_core(name: str, input_size: int, **changes: Any) -> Core:
    """Builds a core from its published defaults and `changes` to its config's fields.

    Raises `ValueError` as `core_config` does, for an input size below 1, and for values that do not
    fit each other (a width that the heads do not divide, an unknown feature map). Says once, on the
    log `fastweights`, if the settings let the state grow without bound.
    """
    if not isinstance(input_size, Integral) or input_size < 1:
        raise ValueError(f"the input size must be a whole number of at least 1, not {input_size!r}")
    core = core_kind(name).build(input_size, core_config(name, **changes))
    if line := growth(name, **changes):
        say_once(name, line)
    return core


def growth(name: str, **changes: Any) -> str | None:
    """Which settings let the core's state grow without bound, and the remedy; None if none do."""
    maps = unbounded_maps(core_config(name, **changes)) if core_kind(name).delta_rule else {}
    return remedy(maps) if maps else None


def core_config(name: str, **changes: Any) -> Any:
    """A core's published defaults with `changes`: the dataclass that it is built from.

    Raises `ValueError` for an unknown core, an option that the core does not have, or a value of
    another type than the option's, not finite, too small or too large.
    """
    kind = core_kind(name)
    for option in changes:
        if option not in kind.options():
            have = ", ".join(kind.options()) or "none"
            hint = did_you_mean(option, kind.options())
            raise ValueError(f"core {name!r} has no option {option!r}; it has: {have}{hint}")
    changes = typed(type(kind.config), changes, "core option ")
    for option, value in changes.items():
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"core option {option!r} must be a finite number, not {value}")
        if type(getattr(kind.config, option)) is int and value < 1:
            raise ValueError(f"core option {option!r} must be at least 1, not {value}")
        if option in LARGEST and value > LARGEST[option]:
            raise ValueError(f"core option {option!r} must be at most {LARGEST[option]}")
    return replace(kind.config, **changes)


__all__ = [
    "CORES",
    "Core",
    "CoreKind",
    "build_core",
    "core_config",
    "core_kind",
    "detach",
    "growth",
    "unroll_by_steps",
    "unroll_truncated",
]
