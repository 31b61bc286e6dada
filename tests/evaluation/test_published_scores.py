"""The published scores agree with the paper's sentences, so that a typing error would show."""

import pytest

from fastweights import envs
from fastweights.evaluation.published_scores import random_and_human, recurrent_fwp

M50, M200 = 50_000_000, 200_000_000
SCORES = recurrent_fwp()
GAMES = sorted({game for game, _, _ in SCORES})


def improvements(ours: str, theirs: str, steps: int) -> list[float]:
    """Return the relative improvement of `ours` over `theirs` for each game."""
    pairs = [(SCORES[game, steps, ours].mean, SCORES[game, steps, theirs].mean) for game in GAMES]
    return [one / other - 1 for one, other in pairs]


def counts(ours: str, theirs: str, steps: int, margin: float) -> tuple[int, int]:
    """Count the games in which `ours`, or `theirs`, is better by more than `margin`."""
    values = improvements(ours, theirs, steps)
    return sum(v > margin for v in values), sum(v < -margin for v in values)


def test_twenty_games_six_agents_two_readings():
    assert len(GAMES) == 20 and len(SCORES) == 20 * 6 * 2
    assert set(GAMES) <= set(random_and_human()) and set(GAMES) <= set(envs.names())


@pytest.mark.parametrize(
    ("ours", "theirs", "steps", "margin", "better", "worse"),
    [
        ("rdn", "lt", M50, 0.01, 17, 2),  # "matches or outperforms ... except for two"; Pong ties
        ("rdn", "lt", M200, 0.06, 14, 2),
        ("rdn", "lstm", M50, 0.05, 12, 3),  # "12 games ... 3 games ... the remaining 5"
        ("rdn", "lstm", M200, 0.05, 9, 6),  # "6 games ... in 9 games the result is the opposite"
        ("feedforward", "lstm", M50, 0.05, 8, 8),  # "8 games ... in 8 other games"
        ("feedforward", "lstm", M200, 0.10, 4, 10),  # "10 games ... only in 4 games"
        ("delta_rnn", "lstm", M200, 0.05, 5, 8),  # "close in 7 ... LSTM in 8 ... Delta RNN in 5"
        ("rdn", "delta_rnn", M200, 0.51, 3, 1),  # "in 16 games ... within 50%"
    ],
)
def test_the_papers_counts_of_games(ours, theirs, steps, margin, better, worse):
    assert counts(ours, theirs, steps, margin) == (better, worse)


def test_rdn_against_delta_net_and_where_the_lstm_leads():
    """ "equally well or better ... on 13 games at 200 M steps ... also 7"."""
    assert sum(value > -0.01 for value in improvements("rdn", "delta_net", M200)) == 13
    leads = {g for g, v in zip(GAMES, improvements("rdn", "lstm", M200), strict=True) if v < -0.2}
    assert leads == {"BattleZone", "Gopher", "Seaquest", "Zaxxon", "Berzerk"}


def test_scores_that_the_paper_prints_twice():
    """Compare with tables 3 and 8, and with the scores named in the text."""
    again = {
        ("BattleZone", "lstm"): (24873, 1240),
        ("Berzerk", "lstm"): (1150, 92),
        ("Gopher", "lstm"): (124914, 22422),
        ("Seaquest", "lstm"): (12643, 1627),
        ("SpaceInvaders", "lstm"): (137657, 2276),
        ("BattleZone", "rdn"): (10980, 1104),
        ("Berzerk", "rdn"): (348, 17),
        ("Gopher", "rdn"): (86008, 11815),
        ("Seaquest", "rdn"): (4373, 504),
        ("Berzerk", "feedforward"): (343, 23),
        ("Gopher", "feedforward"): (61350, 3891),
        ("Seaquest", "feedforward"): (667, 1),
        ("SpaceInvaders", "feedforward"): (53455, 6694),
    }
    assert {key: tuple(SCORES[key[0], M200, key[1]]) for key in again} == again
    assert SCORES["Qbert", M200, "rdn"].mean > 980_000
    assert SCORES["SpaceInvaders", M200, "rdn"].mean > 170_000
    assert {SCORES["Pong", steps, core].mean for _, steps, core in SCORES} == {21}


def test_random_play_is_nought_and_the_human_one():
    references = random_and_human()
    assert len(references) == 57 and set(references) <= set(envs.names())
    assert all(one.human > one.random for one in references.values())
    assert references["Pong"].normalised(-20.7) == 0
    assert references["Pong"].normalised(14.6) == 1
    assert references["Breakout"].normalised(401.2) == pytest.approx(13.87, abs=0.01)
