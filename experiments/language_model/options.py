"""The options of a language model's run, and the presets behind the paper's tables."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tyro

from fastweights.cores import core_kind
from fastweights.cores.options import CoreSizes, of_core, preset_of_core
from fastweights.experiments.sequence_options import PUBLISHED_MAPS, check_seed
from fastweights.host.devices import PRECISIONS
from fastweights.host.names import unknown
from fastweights.host.typed_fields import typed
from fastweights.kernels import check_backend
from fastweights.tasks.language_model import python_docs
from fastweights.tasks.language_model.corpus import CutOptions
from fastweights.tasks.language_model.model import (
    POSITIONS,
    PUBLISHED_CUTOFFS,
    LanguageModel,
    LanguageModelConfig,
)
from fastweights.tasks.language_model.trainer import LanguageTrainerConfig

COMMAND = "wikitext103"


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(CoreSizes):
    """Everything that decides what a run computes, and a few things about where it runs."""

    core: str = "rdn"
    """Memory; the command `atari` shows them all with --list-cores."""
    core_output_scale: str | None = None
    """Factor of a memory's output in residual blocks: one, or head_size for 1 / sqrt(size of a
    head), as in the published language models."""
    data: str | None = None
    """The text: a folder, file or archive (docs/language_models.md lists the forms), or python-docs
    for the documentation inside Python's own library."""
    cut: tyro.conf.OmitArgPrefixes[CutOptions] = field(default_factory=CutOptions)
    held_out: float = python_docs.HELD_OUT
    """Share of a text without splits that is held out for validation, and again for the test."""
    positions: str = "auto"
    """Positions added to words' vectors: sinusoidal (counted from the span's start), none, or auto
    (none with --full-context, as published)."""
    ngrams: int = 1
    """Longest n-gram of tokens with a vector of its own, which is added to the token's; the shorter
    ones have theirs, too. 1: none, as published."""
    ngram_rows: int = 2**15
    """Vectors of all bigrams, of all trigrams, ...; n-grams beyond that share them, by a hash."""
    cutoffs: tuple[int, ...] = PUBLISHED_CUTOFFS
    """First words of the adaptive softmax's clusters; those beyond the vocabulary are left out."""
    dropout: float = 0.1
    """Share left out of words' vectors and of the core's output, and in its blocks, in training."""
    initial_std: float = 0.02
    """Standard deviation of the first weights of linear maps and the embedding, as published; 0:
    linear maps begin as PyTorch's."""
    trainer: tyro.conf.OmitArgPrefixes[LanguageTrainerConfig] = field(
        default_factory=LanguageTrainerConfig
    )
    precision: str = "float32"
    """Of matrix products: float32, bfloat16, or auto (bfloat16 where the device multiplies it in
    hardware). Memories, losses and the optimiser stay in float32."""
    evaluate_every: int = 4_000
    """Updates between measurements on the held-out split, which choose the best weights."""
    stride: int = 1
    """Tokens between the windows of the evaluation at the end (1: as published); runs with
    --full-context carry their state instead."""
    seed: int = 1
    """Of weights, dropout and sampled text."""

    cache: Path | None = None
    """Folder that keeps the text's token numbers (default: texts, beside the runs)."""
    sample_length: int = 100
    """Tokens of sampled text after each measurement, in RUN/samples.txt; 0: none."""
    at_once: int = 32
    """Windows that are evaluated at once."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """CPU threads; 0: all cores."""
    kernels: str = "auto"
    """Backend of the recurrences: auto, reference, chunked, cpu or cuda; see docs/kernels.md."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints; each measurement has one too."""
    profile: bool = False
    """Write where the time goes: profile.txt, and trace.json for chrome://tracing or Perfetto."""
    savedir: Path = Path("runs")
    """Where run folders are made."""
    xpid: str | None = None
    """The run folder's name (default: wikitext103, core and time)."""

    def model(self) -> LanguageModelConfig:
        """The model that these options describe."""
        options = dict(self.core_options())
        if "dropout" in core_kind(self.core).options():
            options["dropout"] = self.dropout
        automatic = "none" if self.trainer.full_context else "sinusoidal"
        return LanguageModelConfig(
            core=self.core,
            core_options=tuple(options.items()),
            positions=automatic if self.positions == "auto" else self.positions,
            ngrams=self.ngrams,
            ngram_rows=self.ngram_rows,
            cutoffs=self.cutoffs,
            dropout=self.dropout,
            span=self.trainer.span,
            initial_std=self.initial_std,
        )

    def build(self, types: int) -> LanguageModel:
        """The model over a vocabulary of so many types, with new weights."""
        return LanguageModel(types, self.model())

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` reads them."""
        paths = {name: getattr(self, name) for name in ("cache", "savedir")}
        plain = {name: None if path is None else str(path) for name, path in paths.items()}
        return asdict(self) | plain | {"task_name": COMMAND}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "LanguageOptions":
        """The inverse of `to_dict`. Raises a one-line `ValueError` for others."""
        if not isinstance(plain, dict) or plain.get("task_name") != COMMAND:
            raise ValueError("these are not the options of a language model")
        own = typed(cls, {name: value for name, value in plain.items() if name not in _PARTS})
        try:
            nested = {
                name: kind(**typed(kind, plain[name], f"{name}."))
                for name, kind in _PARTS.items()
                if name in plain
            }
            return cls(**own | nested)
        except TypeError as error:
            raise ValueError(f"these options do not belong to this version: {error}") from error


_PARTS = {"cut": CutOptions, "trainer": LanguageTrainerConfig}
# What a resumed run may do differently: where and how it runs, not what it learns.
CHANGEABLE_ON_RESUME = (
    *("data", "cache", "sample_length", "at_once", "device", "num_threads", "checkpoint_minutes"),
    *("micro_columns", "profile", "savedir", "xpid"),
)


def check(options: LanguageOptions) -> None:
    """Raises a one-line `ValueError` for numbers that cannot work."""
    options.trainer.check()
    options.cut.check()
    core_kind(options.core)
    check_backend(options.kernels)
    check_seed("--seed", options.seed)
    for name, known in (("positions", ("auto", *POSITIONS)), ("precision", PRECISIONS)):
        if getattr(options, name) not in known:
            raise ValueError(unknown(f"--{name}", getattr(options, name), known))
    for name in ("evaluate_every", "at_once"):
        if getattr(options, name) < 1:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} must be at least 1, not {getattr(options, name)}")
    if not 0 <= options.initial_std < 1:
        raise ValueError(f"--initial-std must lie in [0, 1), not {options.initial_std}")
    if options.sample_length < 0:
        raise ValueError(f"--sample-length must be at least 0, not {options.sample_length}")
    if not 1 <= options.stride <= options.trainer.span:
        span = options.trainer.span
        raise ValueError(f"--stride must lie in [1, {span}], the span, not {options.stride}")
    if not 0 < options.held_out < 0.5:
        raise ValueError(f"--held-out must lie in (0, 0.5), not {options.held_out}")
    if not options.checkpoint_minutes > 0:
        raise ValueError(f"--checkpoint-minutes must be above 0, not {options.checkpoint_minutes}")


def flat(options: LanguageOptions) -> dict[str, Any]:
    """Plain values by the names of their flags, and `task_name`."""
    plain = options.to_dict()
    nested = plain.pop("cut") | plain.pop("trainer")
    return plain | nested


def differences(saved: LanguageOptions, asked: LanguageOptions) -> list[str]:
    """What a resumed run may not change and `asked` would: `--core lstm (was rdn)`."""
    old, new = flat(saved), flat(asked)
    return [
        f"--{name.replace('_', '-')} {value} (was {old.get(name)})"
        for name, value in new.items()
        if name not in CHANGEABLE_ON_RESUME and (name not in old or old[name] != value)
    ]


def resumed(saved: LanguageOptions, asked: LanguageOptions) -> LanguageOptions:
    """What a resumed run goes on with. Raises a one-line `ValueError` where `asked` contradicts."""
    if changed := differences(saved, asked):
        raise ValueError(
            "a resumed run keeps what it computes, so these contradict --resume: "
            f"{', '.join(changed)}; leave them out, or start a new run"
        )
    return replace(asked, savedir=saved.savedir)


# Where the published language models differ from the published sequence tasks.
PUBLISHED_LANGUAGE = {"lt": {"feature_map": "elu", "normaliser": "key_sum"}}
OF_THE_PAPER = ("lt", "delta_net", "delta_mlp", "delta_delta", "delta_rnn", "delta_lstm", "rdn")
UNORDERED = ("transformer", "lt")  # the order of what they read is nowhere but in positions
DELTA_MLP_LAYERS = {"A": 8, "B": 11}  # with which its sizes are close to the others'


def _published(core: str) -> dict[str, Any]:
    own = PUBLISHED_MAPS.get(core, {}) | PUBLISHED_LANGUAGE.get(core, {})
    return own | ({"output_scale": "head_size"} if core in OF_THE_PAPER else {})


def paper(core: str) -> LanguageOptions:
    """As published (Irie et al. 2021, appendix A.1): 16 blocks of 128 on WikiText-103."""
    layers = DELTA_MLP_LAYERS["B"] if core == "delta_mlp" else 16
    sizes = {"layers": layers, "width": 128, "heads": 8, "feedforward": 2048}
    return LanguageOptions(core=core, **preset_of_core(core, sizes | _published(core)))


def small(core: str) -> LanguageOptions:
    """A minute or two a model on one core: two blocks of 128 that read Python's documentation as
    bytes, and the last five of them together."""
    sizes = {"layers": 2, "width": 128, "heads": 8, "feedforward": 256}
    if core == "lstm":
        sizes = {"width": 256}
    trainer = LanguageTrainerConfig(
        updates=1_500, learning_rate=3e-3, warm_up=100, clip=1.0, columns=16, span=128
    )
    return LanguageOptions(
        core=core,
        data=python_docs.NAME,
        cut=CutOptions(vocabulary="bytes"),
        dropout=0.0,
        # The published beginnings cost a third of a bit a byte at the 200th update.
        initial_std=0.0,
        positions="sinusoidal" if core in UNORDERED else "none",
        ngrams=5,
        ngram_rows=2**14,
        trainer=trainer,
        precision="auto",
        evaluate_every=500,
        stride=32,
        sample_length=300,
        **preset_of_core(core, sizes | _published(core) | {"output_scale": "one"}),
    )


PRESETS = {"paper": paper, "small": small}


def preset(name: str, core: str) -> LanguageOptions:
    """The options of a named preset; an unknown name raises a `ValueError` listing the known."""
    if name not in PRESETS:
        raise ValueError(unknown("preset", name, PRESETS))
    return PRESETS[name](core)


def with_core(options: LanguageOptions, wanted: dict[str, Any]) -> LanguageOptions:
    """The same with other options of the core."""
    return replace(options, **of_core(options.core, wanted))
