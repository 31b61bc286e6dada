"""The presets behind the papers' tables, for code execution, ListOps and each other command.

Presets are functions that map a core and a task to training options.
"""

from collections.abc import Callable

from fastweights.cores import preset_of_core
from fastweights.experiments.formal_languages import presets as formal_languages
from fastweights.experiments.sequences.options import PUBLISHED_MAPS, Question, SequenceOptions
from fastweights.host import one_of
from fastweights.tasks import Task, TrainerConfig


def paper(core: str, task: Question) -> SequenceOptions[Question]:
    """Return the published options (Irie et al. 2021, appendix B.2): 200 epochs of 10,000."""
    if core == "lstm":
        trainer = TrainerConfig(learning_rate=3e-3, clip=0.1)
        return SequenceOptions(task=task, core=core, dropout=0.1, trainer=trainer)
    sizes = {"layers": 4, "width": 256, "heads": 16, "feedforward": 1024, "dropout": 0.1}
    own = preset_of_core(core, sizes | PUBLISHED_MAPS.get(core, {}))
    return SequenceOptions(task=task, core=core, **own)


def small(core: str, task: Question) -> SequenceOptions[Question]:
    """Return options that take minutes per model on two CPU cores: short sequences, small models.

    The LSTM has a separate width and clipping, from the paper; other cores without blocks (GRU,
    QRNN, ...) have the blocks' width and no clipping, and were not tuned.
    """
    own, clip = preset_of_core(core, {"width": 128}), 0.1
    if core != "lstm":
        sizes = {"layers": 2, "width": 64, "heads": 4, "feedforward": 256}
        own, clip = preset_of_core(core, sizes | PUBLISHED_MAPS.get(core, {})), 0.0
    trainer = TrainerConfig(learning_rate=3e-3, clip=clip, batch_size=32, epochs=30)
    sequences = {"train_size": 4_000, "valid_size": 500, "test_size": 500}
    return SequenceOptions(task=task.small(), core=core, trainer=trainer, **sequences, **own)


SEQUENCE_PRESETS = {"paper": paper, "small": small}
OF_COMMANDS = {"formal_language": formal_languages.PRESETS}  # commands with separate presets


def presets_of(task: Task | type[Task]) -> dict[str, Callable[[str, Task], SequenceOptions]]:
    """Return the presets of a task's command, by name."""
    return OF_COMMANDS.get(task.trained_by(), SEQUENCE_PRESETS)


def sequence_preset(name: str, core: str, task: Question) -> SequenceOptions[Question]:
    """Return a preset's options; raise a `ValueError` that lists the known for an unknown name."""
    known = presets_of(task)
    one_of("preset", name, known)
    return known[name](core, task)
