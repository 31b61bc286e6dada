"""Metrics of an agent's run: one dict per tick, for `logs.csv` and TensorBoard.

Columns of `logs.csv`:

- `episode_returns`, `mean_episode_return`, `mean_episode_step` and `mean_life_return` cover games
  and lives finished in this tick; they are empty if there are none.
- `recent_*` are means over the last 100 finished games or lives.
- `games` and `lives` count those of the whole run.
- `policy_lag` is the number of updates between the oldest weights that acted in the batch and the
  weights that learned from it.
- `learner_queue_size` is the number of rollouts waiting at that time.
- `seconds_<stage>` is the stage's time in this tick, over all threads (see `host/stages.py`).
- `cpu_seconds` is the CPU time (user and system) of this process and its threads since the last
  row.

An episode is a full game; returns are undiscounted and unclipped; steps are agent steps.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple


class Game(NamedTuple):
    """A finished full game."""

    episode_return: float
    agent_steps: int
    emulator_frames: int


class Metrics:
    """Collects finished games and lives, and writes one row per tick.

    Args:
        write_row: takes the finished row (`RunRecords.log`).
        window: number of games and lives over which `recent_*` are averaged.
    """

    def __init__(
        self,
        write_row: Callable[[dict[str, Any]], None],
        window: int = 100,
    ) -> None:
        self._write_row = write_row
        self._games: deque[Game] = deque(maxlen=window)
        self._lives: deque[float] = deque(maxlen=window)
        self._tick_games: list[Game] = []
        self._tick_lives: list[float] = []
        self._game_count = 0
        self._life_count = 0

    def add_game(self, episode_return: float, agent_steps: int, emulator_frames: int) -> None:
        """Record a finished full game."""
        game = _game(episode_return, agent_steps, emulator_frames)
        self._games.append(game)
        self._tick_games.append(game)
        self._game_count += 1

    def add_life(self, life_return: float) -> None:
        """Record a finished life; the last life of a game counts, too."""
        self._lives.append(float(life_return))
        self._tick_lives.append(float(life_return))
        self._life_count += 1

    @property
    def window_is_full(self) -> bool:
        """Whether the `recent_*` means cover a full window of games."""
        return len(self._games) == self._games.maxlen

    def recent(self) -> dict[str, float | int | None]:
        """Return the `recent_*` means (None before the first game or life) and the counts."""
        return {
            "recent_full_game_return": _mean(game.episode_return for game in self._games),
            "recent_life_return": _mean(self._lives),
            "recent_game_agent_steps": _mean(game.agent_steps for game in self._games),
            "recent_game_emulator_frames": _mean(game.emulator_frames for game in self._games),
            "games": self._game_count,
            "lives": self._life_count,
        }

    def log(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write `row`, which must have `step` (agent steps), plus this tick's and recent games.

        Returns the complete row. Exceptions of `write_row` propagate.
        """
        games, lives = self._tick_games, self._tick_lives
        whole = {
            **row,
            "episode_returns": tuple(game.episode_return for game in games) or None,
            "mean_episode_return": _mean(game.episode_return for game in games),
            "mean_episode_step": _mean(game.agent_steps for game in games),
            "mean_life_return": _mean(lives),
            **self.recent(),
        }
        self._write_row(whole)
        self._tick_games, self._tick_lives = [], []
        return whole

    def state_dict(self) -> dict[str, Any]:
        """Return windows, counts and this tick's games so far, as plain lists and numbers."""
        return {
            "games": [list(game) for game in self._games],
            "lives": list(self._lives),
            "tick_games": [list(game) for game in self._tick_games],
            "tick_lives": list(self._tick_lives),
            "game_count": self._game_count,
            "life_count": self._life_count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._games = deque((_game(*game) for game in state["games"]), self._games.maxlen)
        self._lives = deque(map(float, state["lives"]), self._lives.maxlen)
        self._tick_games = [_game(*game) for game in state["tick_games"]]
        self._tick_lives = [float(life) for life in state["tick_lives"]]
        self._game_count = int(state["game_count"])
        self._life_count = int(state["life_count"])


def _game(episode_return: float, agent_steps: int, emulator_frames: int) -> Game:
    return Game(float(episode_return), int(agent_steps), int(emulator_frames))


def _mean(values: Any) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None
