"""Test scores in a report: the comparisons and their confidence intervals."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fastweights.evaluation.reports.runs import grouped_runs, open_runs
from fastweights.evaluation.reports.scores import (
    matched,
    normalised,
    paper_scores,
    relative_improvements,
    scores,
    scores_in,
    unequal_steps,
)
from tests.evaluation.report_pages import Page, evaluation, reported, short_run, words_of


def test_a_score_is_of_most_games_and_named_by_the_rules_they_had(tmp_path):
    many = evaluation("rdn", [2.0] * 10)
    few = evaluation("rdn", [9.0] * 9)
    older = evaluation("rdn", [9.0] * 50, agent_steps=128)
    capped = evaluation("rdn", [8.0], max_frames=100)
    trained = evaluation("rdn", [7.0], rules={"sticky": 0.25, "full_action_set": True})
    flickering = evaluation("rdn", [3.0], rules={"flicker": 0.5, "frame_stack": 1})
    foreign = evaluation("rdn", [6.0], protocol="mine")
    half_an_hour = evaluation("rdn", [5.0], protocol="noop30", max_frames=108_000)
    endless = evaluation("rdn", [4.0], protocol="machado")
    (game,) = endless.episodes
    endless = replace(endless, episodes=(game._replace(emulator_frames=200_000),))
    others = (older, capped, trained, flickering, foreign, half_an_hour, endless)
    run = short_run(tmp_path, "run", many, few, *others)
    # The name of a file tells neither the rules nor which file is later.
    trained.save(run / "evaluations" / "step_000000000256_zzz.json")
    many.save(run / "evaluations" / "step_000000000256_aaa.json")
    (run / "evaluations" / many.file_name()).unlink()
    found = {
        one.protocol: one.spread("full_game").mean for one in scores(grouped_runs(open_runs([run])))
    }
    assert found == {
        "full-game": 2.0,
        "full-game, cut after 100 frames": 8.0,
        "full-game, sticky 0.25": 7.0,
        "full-game, flicker 0.5": 3.0,
        "mine": 6.0,
        "noop30": 5.0,
        "machado, never cut": 4.0,
    }


def test_a_seed_that_was_tested_before_training_only_does_not_count(tmp_path):
    before = evaluation("rdn", [1.0], agent_steps=0)
    runs = [
        short_run(tmp_path, "one", before, evaluation("rdn", [9.0])),
        short_run(tmp_path, "two", before, seed=2),
    ]
    (score,) = scores(grouped_runs(open_runs(runs)))
    assert (score.spread("full_game").mean, len(score.tested)) == (9.0, 1)
    (score,) = scores(grouped_runs(open_runs(runs[1:])))
    assert score.spread("full_game").mean == 1.0


def test_seeds_that_were_never_cut_stay_together_whatever_their_games_lasted(tmp_path):
    short, long = (
        replace(one, episodes=(one.episodes[0]._replace(emulator_frames=frames),), max_frames=None)
        for frames in (1_000, 200_000)
        for one in [evaluation("rdn", [4.0], protocol="machado")]
    )
    runs = [short_run(tmp_path, "short", short), short_run(tmp_path, "long", long, seed=2)]
    (score,) = scores(grouped_runs(open_runs(runs)))
    assert (score.protocol, len(score.tested)) == ("machado, never cut", 2)
    (score,) = scores(grouped_runs(open_runs(runs[:1])))
    assert score.protocol == "machado"


def test_groups_trained_under_two_protocols_are_told_apart(tmp_path):
    runs = [
        short_run(tmp_path, f"{name}-{protocol}", played, env=env, protocol=protocol)
        for env, name in {"ALE/Pong-v5": "Pong", "Qbert": "Qbert"}.items()
        for protocol, score in {"full-game": 3.0, "machado": 5.0}.items()
        for played in [evaluation("rdn", [score], env=name)]
    ]
    again = short_run(tmp_path, "again", evaluation("rdn", [4.0]), seed=2)
    found = scores(grouped_runs(open_runs([*runs, again])))
    kinds = [
        f"rdn, protocol {protocol}, full-game, argmax" for protocol in ("full-game", "machado")
    ]
    assert sorted(score.kind for score in found) == sorted(2 * kinds)
    (groups,) = normalised(found)
    assert sorted(groups) == ["rdn, protocol full-game", "rdn, protocol machado"]
    assert {s.env: len(s.tested) for s in found if s.kind == kinds[0]} == {"Pong": 2, "Qbert": 1}


def test_wrapped_scores_and_cut_games_are_named_beside_the_score(tmp_path):
    plain = evaluation("rdn", [1.0])
    odd = [
        plain.episodes[0]._replace(cut=True),
        plain.episodes[0]._replace(life_wraps=(1,), episode=1),
    ]
    both = replace(plain, episodes=tuple(odd), action_mode="sampled", max_frames=64)
    run = short_run(tmp_path, "run", plain, both)
    reported(tmp_path / "out", run)
    text = (tmp_path / "out" / "report.md").read_text()
    kind = "† rdn, full-game, cut after 64 frames, sampled, run: "
    assert f"{kind}1 of 2 games reached the limit of 64 frames; their returns" in text
    assert f"{kind}the score counter passed 999,999 and restarted from 0 in 1 of 2 games" in text
    assert "| rdn | 256 | 1.00 ± 0.00 † | episodes |" in text
    assert "| rdn | 256 | 1.00 | 0.615 |" in text


def test_one_seed_a_game_has_no_interval(tmp_path):
    seeds = [
        short_run(tmp_path, f"{core}-{env}-{seed}", played, env=env, seed=seed, core=core)
        for env, core, seed in [
            *(("Pong", "rdn", 1), ("Pong", "rdn", 2), ("Qbert", "rdn", 1), ("Qbert", "rdn", 2)),
            *(("Pong", "lstm", 1), ("Pong", "lstm", 2), ("Qbert", "lstm", 1)),
        ]
        for played in [evaluation(core, [float(seed)], env=env)]
    ]
    page = reported(tmp_path / "out", *seeds)
    means = {row[0]: row[3] for row in page.rows if len(row) == 5 and row[0] in ("rdn", "lstm")}
    assert re.fullmatch(r"0\.\d+ \(0\.\d+ to 0\.\d+\)", means["rdn"])
    assert re.fullmatch(r"0\.\d+ \(-\)", means["lstm"])
    assert "(-: some game has only one seed)" in (tmp_path / "out" / "report.md").read_text()


def test_the_page_names_what_bars_leave_out(tmp_path):
    runs = [
        short_run(tmp_path, "rdn", evaluation("rdn", [3.0])),
        short_run(tmp_path, "wide", evaluation("rdn", [9.0]), core_width=64),
        short_run(tmp_path, "lstm", evaluation("lstm", [2.0]), core="lstm"),
        short_run(tmp_path, "q", evaluation("rdn", [3.0], env="Qbert"), env="Qbert"),
        short_run(tmp_path, "z", evaluation("lstm", [0.0], env="Qbert"), env="Qbert", core="lstm"),
    ]
    reported(tmp_path / "out", *runs, options=("--compare", "rdn:lstm", "lstm:srwm"))
    text = (tmp_path / "out" / "report.md").read_text()
    zero = "No relative improvement, because lstm scores 0: Qbert."
    group = "share more options or come first: rdn, core\\_width 64."
    assert "rdn is better in 1 of 1 game" in text and zero in text and group in text
    assert "lstm over srwm: no game has test scores of both under the same rule.\n" in text


def test_over_several_games_there_are_profiles_and_probabilities(tmp_path):
    """rdn has 21 and 2 against lstm's 5 on Pong; on Qbert both have 7."""
    runs = [
        short_run(tmp_path, f"{core}-{env}-{seed}", played, env=env, core=core, seed=seed)
        for core, env, seed, score in [
            *(("rdn", "Pong", 1, 21.0), ("rdn", "Pong", 2, 2.0)),
            *(("lstm", "Pong", 1, 5.0), ("lstm", "Pong", 2, 5.0)),
            *((core, "Qbert", seed, 7.0) for core in ("rdn", "lstm") for seed in (1, 2)),
        ]
        for played in [evaluation(core, [score], env=env)]
    ]
    page = reported(tmp_path / "out", *runs)
    (row,) = (row for row in page.rows if row[:1] == ["rdn over lstm"])
    assert row[1] == "2"
    assert row[2] == "0.500 (0.250 to 0.750)"  # (1/2 + 1/2) / 2; the bounds draw one run twice
    drawing = (tmp_path / "out" / "report_figures" / "profiles-1-1.svg").read_bytes()
    assert {"rdn", "lstm"} <= set(words_of(drawing))
    text = (tmp_path / "out" / "report.md").read_text()
    above = "(full-game, argmax actions), over 2 games (Pong, Qbert), weighted equally; 0 is"
    assert above in text
    above = "Above human: lstm: 0 %; rdn: 25 %."
    assert above in text


def test_cores_are_compared_where_they_differ_in_nothing_else(tmp_path):
    """The first group of rdn has another stem than the group of lstm; the second has the same."""
    runs = [
        short_run(tmp_path, "a", evaluation("rdn", [3.0]), stem="shallow"),
        short_run(tmp_path, "b", evaluation("rdn", [9.0]), stem="shallow_norm"),
        short_run(tmp_path, "c", evaluation("lstm", [2.0]), stem="shallow_norm", core="lstm"),
    ]
    found = scores(grouped_runs(open_runs(runs)))
    ours, theirs = matched(found, "rdn", "lstm")["Pong"]
    assert (ours.group.runs[0].name, theirs.group.runs[0].name) == ("b", "c")
    reported(tmp_path / "equal", *runs)
    text = (tmp_path / "equal" / "report.md").read_text()
    assert "come first: rdn, stem shallow." in text and "apart from the core" not in text
    reported(tmp_path / "unequal", runs[0], runs[2])
    text = (tmp_path / "unequal" / "report.md").read_text()
    assert "Options that differ, apart from the core's: Pong: stem." in text


def test_groups_are_beside_each_other_over_the_same_games_only(tmp_path):
    """rdn has three games, lstm two others and lt two of them: no table has rdn beside lstm."""
    games = {"rdn": ("Pong", "Qbert", "Alien"), "lt": ("Pong", "Qbert"), "lstm": ("Pong", "Zaxxon")}
    runs = [
        short_run(tmp_path, f"{core}-{env}", played, env=env, core=core)
        for core, envs in games.items()
        for env in envs
        for played in [evaluation(core, [3.0], env=env)]
    ]
    sets = normalised(scores(grouped_runs(open_runs(runs))))
    assert [{core: sorted(by_game) for core, by_game in groups.items()} for groups in sets] == [
        {"rdn": ["Alien", "Pong", "Qbert"]},
        {"lstm": ["Pong", "Zaxxon"]},
        {"lt": ["Pong", "Qbert"], "rdn": ["Pong", "Qbert"]},
    ]
    reported(tmp_path / "out", *runs)
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Human-normalised full games over 3 games (Alien, Pong, Qbert), argmax actions" in text
    assert len(list((tmp_path / "out" / "report_figures").glob("profiles-*.svg"))) == 3


def test_relative_improvements_are_of_the_others_size():
    ours = {"a": 150.0, "b": 5.0, "c": -5.0, "d": 1.0, "e": 1.0}
    other = {"a": 100.0, "b": 10.0, "c": -10.0, "d": 0.0}
    assert relative_improvements(ours, other) == {"a": 50.0, "b": -50.0, "c": 50.0}


def test_the_papers_bars_are_as_its_text_says():
    """RDN matches or outperforms LT on all but two of 20 games, and LSTM on 12, at 50 M steps."""
    rdn, lt, lstm = (paper_scores(core, 50_000_000) for core in ("rdn", "lt", "lstm"))
    over_lt = relative_improvements(rdn, lt)
    assert sum(value >= 0 for value in over_lt.values()) == 18 and len(over_lt) == 20
    over_lstm = relative_improvements(rdn, lstm)
    assert sum(value > 0 for value in over_lstm.values()) == 12


def played_run(folder: Path, core: str, seed: int, returns: list[float], **changes) -> Path:
    """Make a run with test games."""
    played = evaluation(core, returns, **changes)
    return short_run(folder, f"{core}-{seed}", played, env=played.env, core=core, seed=seed)


def compared_rows(page: Page) -> list[list[str]]:
    """Return the table rows of all comparisons of these runs."""
    return [row for row in page.rows if row[-1] in ("training seeds", "test games")]


def test_a_comparison_has_an_interval_over_seeds_or_over_test_games(tmp_path):
    """30 and 50 against 10 and 20, once as seeds and once as test games of one seed each."""
    seeds = [played_run(tmp_path / "s", "rdn", n, [value]) for n, value in enumerate((30.0, 50.0))]
    seeds += [
        played_run(tmp_path / "s", "lstm", n, [value]) for n, value in enumerate((10.0, 20.0))
    ]
    (row,) = compared_rows(reported(tmp_path / "seeds", *seeds))
    both = ["Pong", "40", "15", "+25.0 (+10.0 to +40.0)", "+167 % (+50 % to +400 %)"]
    assert row == [*both, "2 and 2", "training seeds"]
    text = (tmp_path / "seeds" / "report.md").read_text()
    assert "Fewer than 5 training seeds on one side: Pong." in text
    runs = [
        played_run(tmp_path / "g", "rdn", 1, [30, 50]),
        played_run(tmp_path / "g", "lstm", 1, [10, 20]),
    ]
    (row,) = compared_rows(reported(tmp_path / "games", *runs))
    assert row == [*both, "1 and 1", "test games"]
    text = (tmp_path / "games" / "report.md").read_text()
    assert "Only one training seed on at least one side: Pong." in text
    assert "returns of a full game, argmax actions, full-game protocol, 2 games per seed." in text
    alone = [
        played_run(tmp_path / "a", core, 1, [value])
        for core, value in {"rdn": 3, "lstm": 2}.items()
    ]
    (row,) = compared_rows(reported(tmp_path / "alone", *alone))
    assert row[3:5] == ["+1.00 (-)", "+50 % (-)"]


def test_different_training_lengths_are_named_beside_what_compares_them(tmp_path):
    """Two seeds of each core on two games; on Pong, rdn was trained for a shorter time."""
    runs = [
        played_run(tmp_path / env, core, seed, [4.0 * seed], env=env, agent_steps=steps)
        for env, core, steps in [
            *(("Pong", "rdn", 200_000), ("Pong", "lstm", 2_500_000)),
            *(("Qbert", core, 300_000) for core in ("rdn", "lstm")),
        ]
        for seed in (1, 2)
    ]
    reported(tmp_path / "out", *runs)
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    words = "Pong: {} after {}, {} after {} agent steps. That may explain a difference in scores."
    rdn, lstm = ("rdn", "200,000"), ("lstm", "2,500,000")
    in_order = [
        "Training lengths differ: " + words.format(*one, *other)
        for one, other in ((lstm, rdn), (rdn, lstm))
    ]
    table, profiles, pair = (line for line in lines if "Training lengths differ" in line)
    assert (table, pair) == tuple(in_order) and profiles.endswith(in_order[0])
    (groups,) = normalised(found := scores(grouped_runs(open_runs(runs))))
    equal = [score for score in scores_in(groups, found) if score.env == "Qbert"]
    assert len(equal) == 2 and unequal_steps(equal) == ""


def test_each_scoring_rule_has_captions_of_its_own(tmp_path):
    """The same runs are better in full games and worse in lives."""

    def runs() -> Iterator[Path]:
        for core, value, lives in (("rdn", 12.0, 4), ("lstm", 10.0, 2)):
            games = evaluation(core, [value] * 2)
            one = games.episodes[0]._replace(
                lives=lives, life_returns=(value / lives,) * lives, life_wraps=(0,) * lives
            )
            episodes = (one, one._replace(episode=1))
            per_life = replace(games, protocol="published", score="life", episodes=episodes)
            yield short_run(tmp_path, core, games, per_life, core=core)

    page = reported(tmp_path / "out", *runs())
    assert [row[1:5] for row in compared_rows(page)] == [
        ["12", "10", "+2.00 (+2.00 to +2.00)", "+20 % (+20 % to +20 %)"],
        ["3", "5", "-2.00 (-2.00 to -2.00)", "-40 % (-40 % to -40 %)"],
    ]
    text = (tmp_path / "out" / "report.md").read_text()
    captions = [line for line in text.splitlines() if line.startswith("rdn compared to lstm: ")]
    assert ["full game" in line for line in captions] == [True, False]
    assert ["a life" in line for line in captions] == [False, True]


def test_the_papers_other_games_are_not_drawn(tmp_path):
    runs = [played_run(tmp_path, core, 1, [2.0, 4.0]) for core in ("rdn", "lstm")]
    page = reported(tmp_path / "out", *runs)
    folder = tmp_path / "out" / "report_figures"
    (drawing,) = folder.glob("improvement-*.svg")
    words = words_of(drawing.read_bytes())
    assert "Pong" in words and not {"Qbert", "Zaxxon", "Alien"} & set(words)
    assert ["Pong", "21", "21", "+0 %", "21", "21", "+0 %"] in page.rows
    assert (
        "rdn is better in 12 of its 20 games at 50 M"
        in (tmp_path / "out" / "report.md").read_text()
    )
