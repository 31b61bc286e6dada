"""Files of test episodes: a JSON file per evaluation, with its episodes as CSV beside it.

    RUN/evaluations/step_000000200000_full-game_cap108000_argmax_5x30_seed1000000.json
    RUN/evaluations/step_000000200000_full-game_cap108000_argmax_5x30_seed1000000.csv
    RUN/evaluations.csv

The three files hold everything, one row per episode, and one row per evaluation, respectively.
Means and spreads are computed from the raw episodes on demand. docs/evaluation.md lists the fields.
"""

import csv
import io
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from fastweights.evaluation.rules import changed_rules, in_file_name
from fastweights.evaluation.training_returns import FULL_GAME, LIFE, Unit
from fastweights.host import (
    UserError,
    describe_os_error,
    read_object,
    typed_values,
    write_bytes,
    write_json,
)

FORMAT = "fastweights-evaluation"
VERSION = 1
_MOST = 2**53  # maximum return: floats represent all smaller integers exactly


class PlayedGame(NamedTuple):
    """One full game. Returns are undiscounted, unclipped, and as counted by the game."""

    repeat: int
    episode: int  # within its repeat
    seed: int  # the first episode of a single environment with this seed is this one
    episode_return: float
    life_returns: tuple[float, ...]  # in order; they sum to episode_return
    life_wraps: tuple[int, ...]  # overflows of the score counter in each life
    lives: int
    agent_steps: int
    emulator_frames: int  # from the game's reset on
    cut: bool  # whether it reached the time limit

    @property
    def wraps(self) -> int:
        """The number of overflows of the score counter."""
        return sum(self.life_wraps)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Raw test episodes, with all settings needed to play them again."""

    env: str
    protocol: str
    rules: dict[str, Any]  # all fields of the protocol; a non-Atari environment's options
    score: str  # unit of the protocol's scores: the return of a "game" or of a "life"
    max_frames: int | None  # time limit of a game in emulator frames; None: no limit
    action_mode: str
    seed: int
    repeats: int
    agent_steps: int  # length of the agent's training
    core: str
    score_modulus: int | None  # score at which the counter overflows to zero; None: never
    episodes: tuple[PlayedGame, ...]
    # Options that differ from training; for Atari, from the protocol.
    changed_options: dict[str, Any] = field(default_factory=dict)

    @property
    def unit(self) -> Unit:
        """The unit of the protocol's scores."""
        return LIFE if self.score == "life" else FULL_GAME

    @property
    def has_lives(self) -> bool:
        """Whether games have several lives; otherwise a life's return is its game's."""
        return any(episode.lives > 1 for episode in self.episodes)

    def returns(self, unwrapped: bool = False) -> list[list[float]]:
        """Return full-game returns, one list per repeat; `unwrapped` corrects overflows."""
        return self._by_repeat(lambda e: [e.episode_return + self._lost(e.wraps, unwrapped)])

    def life_returns(self, unwrapped: bool = False) -> list[list[float]]:
        """Return the returns of all lives, one list per repeat."""
        return self._by_repeat(
            lambda e: [
                life + self._lost(wraps, unwrapped)
                for life, wraps in zip(e.life_returns, e.life_wraps, strict=True)
            ]
        )

    def scores(self, unwrapped: bool = False) -> list[list[float]]:
        """Return the protocol's scores, one list per repeat: returns of games or of lives."""
        return self.life_returns(unwrapped) if self.unit is LIFE else self.returns(unwrapped)

    def summary(self) -> dict[str, Any]:
        """Return means and population standard deviations, named as in docs/evaluation.md."""
        wrapped = [episode for episode in self.episodes if episode.wraps]
        return {
            "score_mean": fmean(_means(self.scores())),
            "score_std": pstdev(_means(self.scores())),
            **_spread("full_game", self.returns()),
            **_spread("life", self.life_returns()),
            "episodes": len(self.episodes),
            "lives": sum(episode.lives for episode in self.episodes),
            "mean_agent_steps": fmean(episode.agent_steps for episode in self.episodes),
            "mean_emulator_frames": fmean(episode.emulator_frames for episode in self.episodes),
            "cut_episodes": sum(episode.cut for episode in self.episodes),
            "wrapped_episodes": len(wrapped),
            "score_mean_unwrapped": fmean(_means(self.scores(unwrapped=True))),
            "full_game_mean_without_wrapped": _mean_without(
                (e.episode_return, e.wraps) for e in self.episodes
            ),
            "life_mean_without_wrapped": _mean_without(
                life
                for e in self.episodes
                for life in zip(e.life_returns, e.life_wraps, strict=True)
            ),
        }

    @classmethod
    def load(cls, path: Path) -> "Evaluation":
        """Read the file that `save` wrote.

        Raises:
            UserError: the file is missing, damaged or foreign; one line.
        """
        path = Path(path)
        try:
            content = read_object(path)
        except OSError as error:
            raise UserError(f"cannot read the evaluation {describe_os_error(error)}") from error
        except ValueError as error:
            raise UserError(
                f"the evaluation {path} is damaged ({error}): evaluate again"
            ) from error
        try:
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError("it has another format or version")
            raw = content["episodes"]
            episodes = tuple(PlayedGame(**typed_values(PlayedGame, e, "episode.")) for e in raw)
            plain = {name: content[name] for name in content if name != "episodes"}
            evaluation = cls(**typed_values(cls, plain), episodes=episodes)
            evaluation.check()
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} is not an evaluation of this program ({error!r}): evaluate again"
            ) from error
        return evaluation

    def check(self) -> None:
        """Raise a one-line `ValueError` if its parts contradict each other."""
        found = {episode.repeat for episode in self.episodes}
        if not found or (min(found), max(found), len(found)) != (0, self.repeats - 1, self.repeats):
            raise ValueError("every repeat must have episodes, and every episode its repeat")
        if any(not 1 <= len(e.life_returns) == len(e.life_wraps) for e in self.episodes):
            raise ValueError("every episode must have lives, and every life its wraps")
        if any(e.lives != len(e.life_returns) for e in self.episodes):
            raise ValueError("every episode must have as many lives as returns of lives")
        if any(
            min(e.life_wraps) < 0 or (e.wraps and not self.score_modulus) for e in self.episodes
        ):
            raise ValueError("overflows of the counter need a score at which it overflows")
        if self.max_frames is None and any(episode.cut for episode in self.episodes):
            raise ValueError("no episode can be cut without a limit")
        returns = (value for e in self.episodes for value in (e.episode_return, *e.life_returns))
        if not all(abs(value) <= _MOST for value in returns):
            raise ValueError(f"every return must lie within ±{_MOST:,}")
        if not all(_adds_up(episode) for episode in self.episodes):
            raise ValueError("the returns of every episode's lives must add up to its own")

    def save(self, path: Path, **about: Any) -> None:
        """Write `path` (JSON, with the summary and `about`) and a CSV of the same name.

        Raises:
            UserError: `check` found an error, such as a return that is not finite.
        """
        try:
            self.check()
        except ValueError as error:
            raise UserError(f"these games cannot be saved: {error}") from error
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "version": VERSION}
        content |= {field.name: getattr(self, field.name) for field in fields(self)} | about
        content |= {"summary": self.summary()}
        content["episodes"] = [episode._asdict() for episode in self.episodes]
        write_bytes(path.with_suffix(".csv"), _csv(self._rows()))
        write_json(path, content, indent=2)  # last: once it is there, nothing is missing

    def changed_rules(self) -> dict[str, Any]:
        """Return the rules that differ from the protocol or training, without the time limit."""
        return changed_rules(self.protocol, self.rules) | self.changed_options

    def rules_in_words(self) -> str:
        """Return the protocol's name and the changes to it: `full-game, sticky 0.25`."""
        changes = [f"{name} {value}" for name, value in self.changed_rules().items()]
        return ", ".join([self.protocol, *changes])

    def file_name(self) -> str:
        """The file's name: checkpoint, protocol and changes, limit, mode, number of games, seed."""
        changes = [in_file_name(name, v) for name, v in self.changed_rules().items()]
        count = f"{self.repeats}x{len(self.episodes) // self.repeats}"
        cap = () if self.max_frames is None else (f"cap{self.max_frames}",)
        parts = (self.protocol, *changes, *cap, self.action_mode, count, f"seed{self.seed}")
        return "_".join((f"step_{self.agent_steps:012d}", *parts)) + ".json"

    def _by_repeat(self, values: Callable[[PlayedGame], Iterable[float]]) -> list[list[float]]:
        lists: list[list[float]] = [[] for _ in range(self.repeats)]
        for episode in self.episodes:
            lists[episode.repeat].extend(values(episode))
        return lists

    def _lost(self, wraps: int, unwrapped: bool) -> int:
        return wraps * (self.score_modulus or 0) if unwrapped else 0

    def _rows(self) -> list[dict[str, Any]]:
        same = ("env", "core", "agent_steps", "protocol", "action_mode")
        about = {f"trained_{n}" if n == "agent_steps" else n: getattr(self, n) for n in same}
        return [about | _flat(episode) for episode in self.episodes]


def print_warning(line: str) -> None:
    """Print `warning: line` on stderr."""
    print(f"warning: {line}", file=sys.stderr)


def evaluations_in(
    run: Path, warn: Callable[[str], None] = print_warning
) -> dict[Path, Evaluation]:
    """Return every evaluation in the run folder `run`, by its file, fewest training steps first.

    Damaged or foreign files are skipped, and `warn` is called with the reason.
    """
    return _loaded(_files(run), warn)


def write_overview(run: Path) -> None:
    """Write RUN/evaluations.csv: one row per evaluation, sorted by training steps."""
    files: list[Path] = []
    # If several processes evaluate one run, the last to write finds the files of all others.
    while (now := _files(run)) != files:
        files = now
        if rows := [_row(evaluation) for evaluation in _loaded(files, print_warning).values()]:
            write_bytes(Path(run) / "evaluations.csv", _csv(rows))


def _files(run: Path) -> list[Path]:
    return sorted((Path(run) / "evaluations").glob("step_*.json"))


def _loaded(files: Iterable[Path], warn: Callable[[str], None]) -> dict[Path, Evaluation]:
    found = {}
    for path in files:
        try:
            found[path] = Evaluation.load(path)
        except UserError as error:
            warn(f"skipped: {error}")
    return found


def _row(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation's row in the overview."""
    changes = (f"{name}={value}" for name, value in evaluation.changed_rules().items())
    about = {"step": evaluation.agent_steps, "env": evaluation.env}
    about |= {"protocol": evaluation.protocol, "changed_rules": " ".join(changes)}
    names = ("action_mode", "score", "max_frames", "seed", "repeats")
    return about | {n: getattr(evaluation, n) for n in names} | evaluation.summary()


def _spread(name: str, repeats: list[list[float]]) -> dict[str, Any]:
    everything = [value for values in repeats for value in values]
    return {
        f"{name}_mean": fmean(everything),
        f"{name}_std": pstdev(everything),
        f"{name}_std_of_means": pstdev(_means(repeats)),
    }


def _means(repeats: list[list[float]]) -> list[float]:
    return [fmean(values) for values in repeats]


def _mean_without(returns_and_wraps: Iterable[tuple[float, int]]) -> float | None:
    """Return the mean of the returns that did not overflow; None if all did."""
    straight = [one for one, wraps in returns_and_wraps if not wraps]
    return fmean(straight) if straight else None


def _adds_up(episode: PlayedGame) -> bool:
    """Return whether the lives' returns sum to the game's, up to float32 rounding of rewards."""
    largest = max(map(abs, (episode.episode_return, *episode.life_returns)))
    missing = math.fsum(episode.life_returns) - episode.episode_return
    return abs(missing) <= 1e-6 * max(1.0, largest)


def _flat(episode: PlayedGame) -> dict[str, Any]:
    lists = ("life_returns", "life_wraps")
    return episode._asdict() | {
        name: " ".join(f"{value:.12g}" for value in getattr(episode, name)) for name in lists
    }


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
