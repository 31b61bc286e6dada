"""Published scores, from the data files in `evaluation/scores/`, which name their sources."""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "scores"


class PublishedScore(NamedTuple):
    """Mean and standard deviation; for agents, over the means of 5 x 30 test episodes (lives)."""

    mean: float
    std: float | None  # None: one run


class ReferenceScores(NamedTuple):
    """Scores of random play and of a professional human tester in a full game."""

    random: float
    human: float

    def normalised(self, score: float) -> float:
        """Return the score on a scale where random play is 0 and the human is 1."""
        return (score - self.random) / (self.human - self.random)


@cache
def recurrent_fwp() -> dict[tuple[str, int, str], PublishedScore]:
    """Return Irie et al. 2021, Tables 9 and 10, by game, agent steps (50 M, 200 M) and core."""
    return {
        (row["game"], int(row["agent_steps"]), row["core"]): PublishedScore(
            float(row["mean"]), float(row["std"])
        )
        for row in read_rows(_FOLDER / "recurrent_fwp_2021.csv")
    }


@cache
def random_and_human() -> dict[str, ReferenceScores]:
    """Return the reference scores of the usual 57 games by name (`Qbert`)."""
    return {
        row["game"]: ReferenceScores(float(row["random"]), float(row["human"]))
        for row in read_rows(_FOLDER / "atari57_random_human.csv")
    }


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of scores; lines that begin with # are comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
