"""The presets of formal languages: the best published configurations, and ours for two CPU cores.

Source: Irie et al. 2023, appendix C.2 and Tables 3 to 5, and its code: Adam (0.9, 0.995, 1e-9), no
dropout, no clipping, no positional encoding; up to 300 epochs of 10,000 strings; a measurement
every 50 updates, with early stopping once everything is correct. The embedding has the model's
width; an LSTM's has 128 units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastweights.cores import preset_of_core
from fastweights.evaluation import read_rows
from fastweights.experiments.published import SCORES
from fastweights.experiments.sequences.options import PUBLISHED_MAPS, SequenceOptions
from fastweights.tasks import Language, TrainerConfig

_TABLE = SCORES / "formal_languages_2023_configurations.csv"
FURTHER = (500, 2_000, 10_000)  # lengths on which a solution is tested
# As in the published models: no positional encoding; Transformers with LayerNorm after each branch;
# self-referential matrices that start with small queries and weak writes.
MAPS = PUBLISHED_MAPS | {
    "transformer": {"positions": "none", "norm": "post"},
    "srwm": PUBLISHED_MAPS["srwm"] | {"start": "languages"},
}
# The residual block of the published code, for `paper`. With `small`, it did worse on parity and
# Dyck-1, and better on Shuffle-2 (docs/results/formal_languages).
PUBLISHED_BLOCKS = {"srwm": {"norm": "legacy_raw"}}
# Epochs of `small`. Recurrent fast weights get many, because they find weights that generalise
# beyond the trained lengths only by chance.
EPOCHS, MANY_EPOCHS = 48, 80
# Languages with questions, most of which have one answer per string, provide little signal: at the
# published rate, even an LSTM stays at chance on even pairs. With batches of similar lengths, some
# hold only short strings.
FASTEST_WITH_QUESTIONS = 3e-3


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A row of a table of configurations; `feedforward` is in multiples of the width."""

    layers: int = 1
    width: int = 32
    feedforward: int = 2
    heads: int = 4
    learning_rate: float = 1e-2
    batch_size: int = 16

    def sizes(self) -> dict[str, int]:
        """Return the core's sizes."""
        sizes = {name: getattr(self, name) for name in ("layers", "width", "heads")}
        return sizes | {"feedforward": self.feedforward * self.width}


@cache
def configurations() -> Mapping[tuple[str, str], Configuration]:
    """Return configurations by task and core; the task `*` applies to all tasks without a row."""
    kinds = {name: type(value) for name, value in vars(Configuration()).items()}
    return {
        (row["task"], row["core"]): Configuration(
            **{name: kind(row[name]) for name, kind in kinds.items()}
        )
        for row in read_rows(_TABLE)
    }


def configuration(task: str, core: str) -> Configuration:
    """Return the published configuration of a task and core, or one of the search space."""
    known = configurations()
    return known.get((task, core)) or known.get(("*", core)) or Configuration()


def paper(core: str, task: Language) -> SequenceOptions[Language]:
    """Return the published options: up to 300 epochs of 10,000 strings."""
    sizes = {"train_size": 10_000, "valid_size": 1_000, "test_size": 2_000}
    maps = MAPS.get(core, {}) | PUBLISHED_BLOCKS.get(core, {})
    return _options(core, task, maps, {"epochs": 300}, **sizes)


def small(core: str, task: Language) -> SequenceOptions[Language]:
    """Return options that take minutes per model on one CPU core, with published lengths and sizes.

    There are fewer strings and epochs than published. Gradients are clipped, and an average of the
    weights is evaluated instead of the weights themselves.
    """
    sizes = {"train_size": 2_000, "valid_size": 200, "test_size": 500, "length_size": 20}
    epochs = MANY_EPOCHS if core in ("rdn", "srwm") else EPOCHS
    training = {"epochs": epochs, "clip": 0.1, "average": 0.99}
    if task.asks:
        rate = configuration(task.name, core).learning_rate
        training["learning_rate"] = min(rate, FASTEST_WITH_QUESTIONS)
        training["similar_lengths"] = True
    return _options(core, task, MAPS.get(core, {}), training, **sizes)


def _options(
    core: str, task: Language, maps: Mapping[str, Any], training: Mapping[str, Any], **sizes: int
) -> SequenceOptions[Language]:
    chosen = configuration(task.name, core)
    wanted: dict[str, Any] = chosen.sizes() | maps
    published = {"learning_rate": chosen.learning_rate, "similar_lengths": False}
    trainer = TrainerConfig(
        batch_size=chosen.batch_size, evaluate_every=50, solved_for=1, **published | training
    )
    own = preset_of_core(core, wanted)
    return SequenceOptions(
        task=task, core=core, trainer=trainer, test_lengths=FURTHER, **sizes, **own
    )


PRESETS = {"paper": paper, "small": small}
