"""Environment names: our games, Atari games in several spellings, and Gymnasium ids."""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import gymnasium

from fastweights.envs.constructors import declared_kinds, value_of
from fastweights.host import import_named, nearest_name

# Our small games: names and registered Gymnasium ids.
OWN_GAMES = {"Catch": "fastweights/Catch-v0", "TMaze": "fastweights/TMaze-v0"}

# ALE/Qbert-v5, QbertNoFrameskip-v4, Qbert, qbert
_ATARI_SPELLING = re.compile(r"(?:ALE/)?(\w+?)(?:NoFrameskip|Deterministic)?(?:-v[045])?")
_SUFFIXES = re.compile(r"(?:NoF\w*)?(?:-v\d+)?$")  # misspelt ones too
# ale-py includes these, too, but they need two or more players.
_MULTIPLAYER = {"combat", "joust", "maze_craze", "warlords"}
# Packages of games outside Gymnasium, by the prefix of their ids.
_PACKAGES = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "MiniWorld-": "miniworld",
    "popgym-": "popgym",
    "Vizdoom": "vizdoom",
}
# Games with such ids show agents their last action, as POPGym's baselines do in all games
# (Morad et al. 2023, popgym/baselines/ppo.py).
_LAST_ACTION_IS_SEEN = ("popgym-",)


class Name(NamedTuple):
    """What an environment's name refers to: an ale-py ROM or a Gymnasium id; the other is None."""

    rom: str | None
    gymnasium_id: str | None  # with its module, if one was given
    display: str  # name for messages and logs

    def options_of(self, texts: Mapping[str, str]) -> dict[str, object]:
        """Return options given as text, with the types that the constructor declares.

        If it declares none, and for Atari, text that looks like a number becomes a number.
        """
        kinds = declared_kinds(self.gymnasium_id) if self.gymnasium_id and texts else {}
        return {name: value_of(text, kinds.get(name, "")) for name, text in texts.items()}

    def time_limit(self, options: Mapping[str, object]) -> int | None:
        """Return the step limit of a Gymnasium environment with `options`; None without one."""
        spec = gymnasium.registry.get((self.gymnasium_id or "").rpartition(":")[2])
        limit = options.get("max_episode_steps", spec and spec.max_episode_steps)
        return limit if isinstance(limit, int) and limit > 0 else None


def names() -> tuple[str, ...]:
    """Return our own games and ale-py's single-player Atari games, as `make` takes them."""
    return (*OWN_GAMES, *sorted(map(game_name, _roms().values())))


def game_name(rom: str) -> str:
    """Return the game's name in Gymnasium ids: `MsPacman` for `ms_pacman`."""
    return rom.title().replace("_", "")


def resolve(name: str) -> Name:
    """Find the environment called `name`.

    A registered Gymnasium id takes precedence over an Atari game of the same name. An Atari id
    (`ALE/Qbert-v5`, `QbertNoFrameskip-v4`) selects the game only: the protocol sets the dynamics.
    Case and underscores do not matter in an Atari game's name.

    Raises:
        ValueError: an unknown name (the message suggests the closest known name), or a module that
            cannot be imported.
    """
    if name in OWN_GAMES:
        return Name(None, OWN_GAMES[name], name)
    if _is_registered(name):
        return Name(None, name, name)
    if rom := _rom_called(name):
        return Name(rom, None, game_name(rom))
    raise ValueError(_unknown(name))


def shows_last_action(name: str) -> bool:
    """Return the default of `--feed-last-action` for the environment `name`.

    It depends only on the name, so that the environment's module need not be importable.
    """
    return name.rpartition(":")[2].startswith(_LAST_ACTION_IS_SEEN)


def _is_registered(name: str) -> bool:
    module, _, gymnasium_id = name.rpartition(":")
    if module:
        import_named(name, "my_module:MyGame-v0", _PACKAGES.values())
    return gymnasium_id in _registered()


def _registered() -> set[str]:
    """Return Gymnasium's ids without Atari's, which ale-py registers only once it is imported."""
    specs = gymnasium.registry.items()
    return {name for name, spec in specs if not str(spec.entry_point).startswith("ale_py")}


def _registered_by(module: str) -> Iterator[str]:
    for name, spec in gymnasium.registry.items():
        made_by = spec.entry_point or spec.vector_entry_point
        where = made_by if isinstance(made_by, str) else getattr(made_by, "__module__", "")
        if where.partition(":")[0].partition(".")[0] == module.partition(".")[0]:
            yield name


def _rom_called(name: str) -> str | None:
    match = _ATARI_SPELLING.fullmatch(name)
    return _roms().get(_squash(match[1])) if match else None


@cache
def _roms() -> dict[str, str]:
    """Return ROM names by their squashed form: `mspacman` -> `ms_pacman`."""
    from ale_py import roms

    return {_squash(rom): rom for rom in roms.get_all_rom_ids() if rom not in _MULTIPLAYER}


def _squash(name: str) -> str:
    return name.replace("_", "").lower()


def _unknown(name: str) -> str:
    match = _ATARI_SPELLING.fullmatch(name)
    if match and _squash(match[1]) in map(_squash, _MULTIPLAYER):
        return (
            f"{name} needs two or more players, and only single-player games are supported: choose "
            "a game such as Qbert; --list-envs shows all"
        )
    if package := _package_of(name):
        missing = importlib.util.find_spec(package) is None
        first = f"which is not installed: pip install {package}, then use" if missing else "so use"
        return f"{name} comes with the package {package}, {first} --env {package}:{name}"
    module, _, own = name.rpartition(":")
    if module:
        there = ", ".join(sorted(_registered_by(module))) or "none"
        return f"{module} registers no game named {own!r}; its games: {there}"
    known = (*names(), *_registered())
    spellings = (name, name.removeprefix("ALE/"), _SUFFIXES.sub("", name))
    near = filter(None, (nearest_name(spelling, known) for spelling in spellings))
    meant = ", ".join(dict.fromkeys(near))
    give = f"did you mean {meant}? Use" if meant else "use"
    return (
        f"unknown environment {name!r}: {give} an Atari game (Qbert), "
        f"{' or '.join(OWN_GAMES)}, or a registered Gymnasium id (CartPole-v1, my_module:MyGame-v0)"
    )


def _package_of(name: str) -> str | None:
    """Return the known package that provides `name`, unless its games are already registered."""
    for start, package in _PACKAGES.items():
        if name.startswith(start) and not any(one.startswith(start) for one in _registered()):
            return package
    return None
