"""The options of a language-model run, and the presets behind the paper's tables."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tyro

from fastweights.cores import preset_of_core, set_by_models
from fastweights.experiments.learning_options import LearningOptions, differing_learning_options
from fastweights.experiments.sequences.options import PUBLISHED_MAPS
from fastweights.host import (
    COUNT,
    NOT_NEGATIVE,
    PRECISIONS,
    check_kept,
    check_range,
    check_ranges,
    expanded,
    one_of,
    typed_whole,
)
from fastweights.records import check_stays
from fastweights.tasks.language_model import (
    POSITIONS,
    PUBLISHED_CUTOFFS,
    PYTHON_DOCS,
    PYTHON_DOCS_HELD_OUT,
    CutOptions,
    LanguageModel,
    LanguageModelConfig,
    LanguageTrainerConfig,
)

LANGUAGE_COMMAND = "wikitext103"


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(LearningOptions):
    """All options of a language-model run: what it computes, and where it runs."""

    core: str = "rdn"
    """Memory, or my_module:name for your own (docs/cores.md)."""
    core_output_scale: str | None = None
    """Factor of a memory's output in residual blocks: one, or head_size for 1 / sqrt(head size), as
    in the published language models."""
    data: str | None = None
    """Text: a folder, file or archive (docs/language_models.md lists the forms), or python-docs
    for the documentation in Python's standard library."""
    cut: tyro.conf.OmitArgPrefixes[CutOptions] = field(default_factory=CutOptions)
    held_out: float = PYTHON_DOCS_HELD_OUT
    """For a text without splits: share held out for validation, and another for the test."""
    positions: str = "auto"
    """Positional encoding of the embeddings: sinusoidal (counted from the span's start), none, or
    auto (none with --full-context, as published)."""
    ngrams: int = 1
    """Maximum length of token n-grams whose embeddings are added to the token's embedding. 1: no
    n-grams, as published."""
    ngram_rows: int = 2**15
    """Number of hashed embeddings per n-gram length; if there are more n-grams, they share them."""
    cutoffs: tuple[int, ...] = PUBLISHED_CUTOFFS
    """Cutoffs of the adaptive softmax's clusters; those beyond the vocabulary are dropped."""
    dropout: float = 0.1
    """Dropout rate of the embeddings, of the core's output, and in its blocks."""
    initial_std: float = 0.02
    """Standard deviation of the initial weights of linear maps and the embedding, as published; 0:
    PyTorch's initial weights for linear maps."""
    trainer: tyro.conf.OmitArgPrefixes[LanguageTrainerConfig] = field(
        default_factory=LanguageTrainerConfig
    )
    precision: str = "float32"
    """Precision of matrix products: float32, bfloat16, or auto (bfloat16 on GPUs and CPUs where
    it is expected to be faster, otherwise float32). Memories, losses and the optimiser stay in
    float32."""
    evaluate_every: int = 4_000
    """Number of updates between measurements on the held-out split, which select the best weights.
    """
    stride: int = 1
    """Number of tokens between windows in the final evaluation (published: 1); runs with
    --full-context carry their state instead."""

    cache: Path | None = None
    """Folder that caches the text's token numbers (default: texts, beside the runs)."""
    sample_length: int = 100
    """Number of tokens to sample into RUN/samples.txt after each measurement; 0: none."""
    at_once: int = 32
    """Number of windows evaluated in parallel."""
    changeable_on_resume = (
        *LearningOptions.changeable_on_resume,
        *("data", "cache", "sample_length", "at_once", "micro_columns"),
    )
    task_name = command = LANGUAGE_COMMAND

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        super().check()
        self.trainer.check()
        self.cut.check()
        for name, known in (("positions", ("auto", *POSITIONS)), ("precision", PRECISIONS)):
            one_of(f"--{name}", getattr(self, name), known)
        if self.core_positions is not None:
            raise ValueError("--core-positions: use --positions for a language model")
        check_ranges(self, COUNT, "evaluate_every", "at_once")
        check_ranges(self, NOT_NEGATIVE, "sample_length")
        check_range("initial_std", self.initial_std, "[0, 1)")
        if not 1 <= self.stride <= self.trainer.span:
            span = self.trainer.span
            raise ValueError(f"--stride must lie in [1, {span}], the span, not {self.stride}")
        check_range("held_out", self.held_out, "(0, 0.5)")

    def model(self) -> LanguageModelConfig:
        """Return the model's configuration."""
        options = dict(self.core_options())
        if "dropout" in set_by_models(self.core):
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
        """Return the model over a vocabulary of `types` types, with new weights."""
        return LanguageModel(types, self.model())

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "LanguageOptions":
        """Return the options from `to_dict`; raise a one-line `ValueError` for other dicts."""
        if not isinstance(plain, dict) or plain.get("task_name") != LANGUAGE_COMMAND:
            raise ValueError("these are not the options of a language model")
        return typed_whole(cls, plain, _PARTS)


_PARTS = {"cut": CutOptions, "trainer": LanguageTrainerConfig}


def with_full_paths(options: LanguageOptions) -> LanguageOptions:
    """Return options with absolute paths of text and cache: a run may be resumed elsewhere.

    Raises a one-line `ValueError` for an empty `--data`, which would mean the current folder.
    """
    data = options.data
    if data == "":
        raise ValueError("--data is empty: name a file, a folder or an archive")
    if data not in (None, PYTHON_DOCS):
        data = str(expanded(data).resolve())
    return replace(options, data=data, cache=options.cache and expanded(options.cache).resolve())


def resumed_language_options(
    run: Path, saved: LanguageOptions, asked: LanguageOptions
) -> LanguageOptions:
    """Return the options of the run in folder `run`, resumed with the options `asked`.

    Raises a one-line `ValueError` for a contradiction.
    """
    check_stays(run, saved, asked)
    saved = with_full_paths(saved)
    check_kept(differing_learning_options(saved, asked))
    return replace(asked, savedir=saved.savedir)


# Core options that differ between the published language models and sequence tasks.
PUBLISHED_LANGUAGE = {"lt": {"feature_map": "elu", "normaliser": "key_sum"}}
# The published code divides the outputs of these memories by the root of the head size.
_SCALED = ("lt", "delta_net", "delta_rnn", "delta_lstm", "rdn")
UNORDERED = ("transformer", "lt")  # cores that need positional encoding to know the word order
_DELTA_MLP_LAYERS = {"A": 8, "B": 11}  # for about as many parameters as the other cores


def _published(core: str) -> dict[str, Any]:
    own = PUBLISHED_MAPS.get(core, {}) | PUBLISHED_LANGUAGE.get(core, {})
    return own | ({"output_scale": "head_size"} if core in _SCALED else {})


def of_version(core: str, version: str) -> dict[str, Any]:
    """Return the core options of the preset `paper` that differ for a version of a fast network."""
    of_first = {
        "delta_mlp": {"layers": _DELTA_MLP_LAYERS["A"]},
        "delta_rnn": {"feature_map": "softmax", "output_scale": "one"},
        "delta_lstm": {"output_scale": "one"},
    }
    return of_first.get(core, {}) if version == "A" else {}


def paper(core: str) -> LanguageOptions:
    """Return the published options: 16 blocks of 128 on WikiText-103.

    Source: Irie et al. 2021, appendix A.1.
    """
    layers = _DELTA_MLP_LAYERS["B"] if core == "delta_mlp" else 16
    sizes = {"layers": layers, "width": 128, "heads": 8, "feedforward": 2048}
    return LanguageOptions(core=core, **preset_of_core(core, sizes | _published(core)))


def small(core: str) -> LanguageOptions:
    """Return options that take a minute or two per model on one CPU core.

    Two blocks of 128 read the bytes of Python's documentation, and n-grams of the last five bytes.
    """
    sizes = {"layers": 2, "width": 128, "heads": 8, "feedforward": 256}
    if core == "lstm":
        sizes = {"width": 256}
    trainer = LanguageTrainerConfig(
        updates=1_500, learning_rate=3e-3, warm_up=100, clip=1.0, columns=16, span=128
    )
    return LanguageOptions(
        core=core,
        data=PYTHON_DOCS,
        cut=CutOptions(vocabulary="bytes"),
        dropout=0.0,
        # The published initial weights cost a third of a bit per byte at the 200th update.
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


LANGUAGE_PRESETS = {"paper": paper, "small": small}


def language_preset(name: str, core: str) -> LanguageOptions:
    """Return a preset's options; raise a `ValueError` that lists the known for an unknown name."""
    one_of("preset", name, LANGUAGE_PRESETS)
    return LANGUAGE_PRESETS[name](core)
