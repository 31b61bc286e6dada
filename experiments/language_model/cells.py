"""Runs of the language-model command in a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastweights.experiments.language_model.measuring import SPLITS
from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.experiments.learning_cells import LearningRun
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.host import UserError

_MEASURES = ("loss", "predictions", "perplexity", "word_perplexity")


@dataclass(frozen=True)
class LanguageRun(LearningRun):
    """The training of one language model; `text` is the digest of the table's text."""

    options: LanguageOptions
    text: str

    @property
    def measures(self) -> Mapping[str, Sequence[str]]:
        # Models of words have no bits per byte where rare words became `<unk>`.
        bits = ("bits_per_byte",) * (self.options.cut.vocabulary == "bytes")
        return dict.fromkeys(SPLITS, (*_MEASURES, *bits))

    def check(self) -> None:
        super().check()
        if self.finished and self.result()["text"]["digest"] != self.text:
            raise UserError(
                f"{self.path} holds a run on another text than the table's, {self.text}: move it "
                "away, or choose another --runs"
            )

    def differences(self, stored: dict[str, Any]) -> list[str]:
        return differing_learning_options(LanguageOptions.from_dict(stored), self.options)
