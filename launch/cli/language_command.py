"""What the command of formal languages has beside other sequence tasks' commands."""

from dataclasses import dataclass

from fastweights.experiments.sequence_options import Question
from fastweights.launch.cli.sequence_command import SequenceCommand


@dataclass(frozen=True, kw_only=True)
class LanguageCommand(SequenceCommand[Question]):
    """Train a memory on a formal language, or rebuild a table of the papers.

    Options start from a preset and are changed one by one.
    """

    task: str = "parity"
    """Language: parity, aa, abab, a_n_b_n, ...; an unknown one lists them all."""
