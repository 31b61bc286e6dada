"""Names of games: all usual spellings work, and others get one helpful line."""

import gymnasium
import pytest

from fastweights import envs
from fastweights.envs.naming import resolve, shows_last_action

SPELLINGS = {
    "qbert": ["Qbert", "qbert", "ALE/Qbert-v5", "QbertNoFrameskip-v4", "QbertDeterministic-v4"],
    "ms_pacman": ["MsPacman", "ms_pacman", "ALE/MsPacman-v5", "MsPacmanNoFrameskip-v4"],
    "space_invaders": ["SpaceInvaders", "SpaceInvadersNoFrameskip-v4"],
    "up_n_down": ["UpNDown", "ALE/UpNDown-v5"],
    "jamesbond": ["Jamesbond", "JamesBond", "JamesbondNoFrameskip-v4"],
    "battle_zone": ["BattleZone", "Battlezone", "battle_zone"],
}


@pytest.mark.parametrize(
    ("rom", "name"), [(rom, name) for rom, names in SPELLINGS.items() for name in names]
)
def test_atari_spellings(rom, name):
    assert resolve(name).rom == rom
    assert resolve(name).gymnasium_id is None


def test_every_listed_name_resolves_to_itself():
    listed = envs.names()
    assert {"Catch", "TMaze", "Qbert", "Pong", "MsPacman", "UpNDown"} <= set(listed)
    assert len(set(listed)) == len(listed) > 100
    assert [resolve(name).display for name in listed] == list(listed)


def test_a_registered_gymnasium_id_comes_before_an_atari_game():
    assert resolve("Blackjack").rom == "blackjack"
    assert resolve("Blackjack-v1").gymnasium_id == "Blackjack-v1"
    gymnasium.register("Boxing-v5", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
    try:
        assert resolve("Boxing-v5").gymnasium_id == "Boxing-v5"
    finally:
        del gymnasium.registry["Boxing-v5"]
    assert resolve("Boxing-v5").rom == "boxing"


def test_ale_registrations_change_nothing():
    gymnasium.registry.pop("ALE/Qbert-v5", None)
    before = resolve("ALE/Qbert-v5")
    gymnasium.register("ALE/Qbert-v5", entry_point="ale_py.env:AtariEnv")
    assert resolve("ALE/Qbert-v5") == before


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("Qbrt", "Qbert"),
        ("QbertNoFrameskp-v4", "Qbert"),
        ("ALE/SpaceInvader-v5", "SpaceInvaders"),
        ("CartPole", "CartPole-v1"),
        ("Cach", "Catch"),
        ("t-maze", "TMaze"),
    ],
)
def test_an_unknown_name_is_told_the_nearest_in_one_line(typo, meant):
    with pytest.raises(ValueError, match="unknown environment") as raised:
        envs.make(typo, 1)
    message = str(raised.value)
    suggestions = message.partition("did you mean ")[2].partition("?")[0].split(", ")
    assert repr(typo) in message
    assert "\n" not in message
    assert meant in suggestions
    assert "Gymnasium id" in message


@pytest.mark.parametrize("name", ["zzzzzz", "", "no_such_module_here:Game-v0"])
def test_hopeless_names_are_value_errors_too(name):
    with pytest.raises(ValueError, match=r"unknown environment|cannot import") as raised:
        envs.make(name, 1)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["Combat", "combat", "ALE/MazeCraze-v5", "WarlordsNoFrameskip-v4"])
def test_a_game_for_several_players_is_known_and_refused(name):
    with pytest.raises(ValueError, match=f"^{name} needs two or more players.*such as Qbert"):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "package"),
    [("MiniGrid-MemoryS7-v0", "minigrid"), ("BabyAI-GoToRedBall-v0", "minigrid")],
)
def test_a_package_that_is_not_installed_is_named_with_how_to_get_it(name, package):
    how = f"pip install {package}, then use --env {package}:{name}"
    with pytest.raises(ValueError, match=f"^{name} comes with the package {package}.*: {how}$"):
        resolve(name)
    with pytest.raises(ValueError, match=f"cannot import .*; pip install {package}$"):
        resolve(f"{package}:{name}")


def test_a_package_that_is_installed_is_to_be_named(tmp_path, monkeypatch):
    (tmp_path / "vizdoom.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"so use --env vizdoom:VizdoomTakeCover-v1$"):
        resolve("VizdoomTakeCover-v1")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("popgym:popgym-CountRecallEasy-v0", True), ("popgym-X-v9", True), ("popgym:Mine-v0", False)]
    + [(name, False) for name in ("Qbert", "TMaze", "CartPole-v1", "mine:mine-popgym-v0")],
)
def test_the_last_action_is_shown_by_name_and_nothing_is_imported(name, shown, monkeypatch):
    monkeypatch.setattr("importlib.import_module", None)
    assert shows_last_action(name) == shown


def test_a_module_s_own_games_are_listed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "games_of_mine.py").write_text(
        "import gymnasium\n"
        "class Game(gymnasium.Env): pass\n"
        "gymnasium.register('Mine-v0', entry_point=Game)\n"
        "gymnasium.register('Mine-v1', entry_point='games_of_mine:Game')\n"
    )
    try:
        with pytest.raises(
            ValueError, match="games_of_mine registers no game named 'Mine-v2'"
        ) as raised:
            resolve("games_of_mine:Mine-v2")
        assert "its games: Mine-v0, Mine-v1" in str(raised.value)
    finally:
        for name in ("Mine-v0", "Mine-v1"):
            gymnasium.registry.pop(name, None)
