"""Tables that commands print, in a terminal of 80 columns."""

import io
from dataclasses import replace

from rich.console import Console

from fastweights.cores import CORES
from fastweights.evaluation.evaluation_file import Evaluation, PlayedGame
from fastweights.evaluation.printed_tables import comparison_tables, core_table, evaluation_table


def test_eighty_columns_cut_no_name_of_a_core():
    shown = io.StringIO()
    Console(width=80, file=shown).print(core_table())
    rows: list[list[str]] = []
    for line in shown.getvalue().splitlines():
        if line.startswith("│"):
            columns = [column.strip() for column in line.strip("│").split("│")]
            if columns[0]:
                rows.append([""] * len(columns))
            rows[-1] = [old + new for old, new in zip(rows[-1], columns, strict=True)]
    assert [row[0] for row in rows] == list(CORES)
    for row, kind in zip(rows, CORES.values(), strict=True):
        whole = (kind.systematic_name, kind.equation, kind.source)
        assert list(map(_packed, row[2:])) == list(map(_packed, whole))


def _packed(text: str) -> str:
    return "".join(text.split())


def _played(*games: tuple[float, ...]) -> Evaluation:
    """Return an evaluation with games that have these returns of lives."""
    return Evaluation(
        env="Somewhere",
        protocol="full-game",
        rules={},
        score="game",
        max_frames=None,
        action_mode="argmax",
        seed=1,
        repeats=1,
        agent_steps=100,
        core="rdn",
        score_modulus=None,
        episodes=tuple(
            PlayedGame(0, i, 1 + i, sum(lives), lives, (0,) * len(lives), len(lives), 10, 40, False)
            for i, lives in enumerate(games)
        ),
    )


def _names(evaluations: dict[str, Evaluation]) -> list[str]:
    return list(evaluation_table("a", evaluations).columns[0].cells)


def test_lives_have_rows_where_a_game_has_several():
    without, several = _played((3.0,), (5.0,)), _played((1.0, 2.0), (5.0,))
    of_games = ["full-game return", "games", "agent steps per game", "emulator frames per game"]
    assert _names({"after": without}) == of_games
    of_lives = ["full-game return", "per-life return", "games, lives", *of_games[2:]]
    assert _names({"after": several}) == of_lives
    assert _names({"before": without, "after": several}) == of_lives


def test_emulator_frames_have_a_row_where_there_is_an_emulator():
    games = [game._replace(emulator_frames=game.agent_steps) for game in _played((3.0,)).episodes]
    without = replace(_played((3.0,)), episodes=tuple(games))
    assert "emulator frames per game" not in _names({"after": without})
    assert "emulator frames per game" in _names({"after": _played((3.0,))})


def test_full_games_and_lives_have_a_table_each_and_the_papers_a_row_a_core():
    several = replace(_played((100.0, 200.0), (300.0, 300.0)), env="Qbert")
    called = "a_run_with_a_rather_long_name, 450,560 steps (rdn, argmax)"
    full, lives = comparison_tables({called: several})
    assert len(full.rows) == 3 and len(lives.rows) == 7
    for table, here, foreign in (
        (full, "450.0 ± 150.0", "5,897"),
        (lives, "225.0 ± 82.9", "163.9"),
    ):
        shown = io.StringIO()
        Console(width=60, file=shown).print(table)
        text = shown.getvalue()
        assert max(map(len, text.splitlines())) <= 60 and "…" not in text
        assert here in text and foreign not in text
    assert comparison_tables({called: _played((1.0,))}) == []


def test_a_narrow_terminal_has_words_of_a_readable_width():
    shown = io.StringIO()
    Console(width=60, file=shown).print(core_table(60))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 60 and "…" not in shown.getvalue()
    assert len(lines) < 9 * len(CORES)
    assert "Irie et al. 2021" in shown.getvalue()
