"""Atari on ale-py's C++ vector environment.

This file relies on these facts about ale-py 0.12, which `tests/envs/` checks:

- `life_loss_info=True` reports a lost life as `terminated` while the game continues.
  `episodic_life=True` would reset the whole game, so it is off.
- With same-step autoreset, the row in which a game ends holds the old game's reward and the new
  game's frame, lives and frame numbers.
- `frame_number` keeps counting across resets and `episode_frame_number` restarts. Their difference
  is the frame at which the current game began. It changes exactly when a game ends, even in games
  without lives. So it gives a game's exact length in emulator frames: including the frames before
  the first decision, and without the frames by which game over shortened the last step.
- Where a game ended, `final_obs` holds the old game's last stack, [B, C, H, W]. At the frame limit,
  ale-py breaks off an action before it reads the screen. So the newest picture of a stack that was
  cut off is pooled from screens up to one agent step older.
- Each row has newly allocated arrays, which may be modified.
- A new game's stack holds its first picture last, and zeros before it.
"""

import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Int, UInt8

from fastweights.envs.accounting import Accounting
from fastweights.envs.flicker import Blanks
from fastweights.envs.interface import CutOff, TimeStep, check_action, check_batch
from fastweights.envs.naming import game_name
from fastweights.envs.protocols import Protocol

FRAMES_PER_SECOND = 60
_NEVER = 2**31 - 1  # ale-py's maximum limit, in emulator frames: more than a year of play


class AtariEnvironments:
    """A batch of one Atari game; frames are [B, frame_stack, 84, 84] uint8, newest last.

    Args:
        rom: ale-py's name of the game, such as `ms_pacman`.
        num_envs: B.
        seed: environment `i` plays from seed `seed + i`, for any B and `num_threads`.
        protocol: rules of play and scoring.
        render: also emulate in colour for `render`, at about twice the cost.
        num_threads: emulation threads; 0: one per CPU core.
        tell_cut_off: fill `TimeStep.cut_off`.

    Raises:
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        rom: str,
        num_envs: int,
        *,
        seed: int,
        protocol: Protocol,
        render: bool = False,
        num_threads: int = 0,
        tell_cut_off: bool = False,
    ):
        check_batch(num_envs, seed)
        self._emulators = _emulators(rom, num_envs, protocol, num_threads)
        self._colour = _colour_twin(rom, num_envs, protocol, num_threads) if render else None
        self._seed = seed
        self._accounting = Accounting(num_envs)
        self._blanks = Blanks(num_envs, protocol) if protocol.flicker else None
        self._picture: np.ndarray | None = None
        self._tell_cut_off = tell_cut_off
        self.name = game_name(rom)
        self.num_envs = num_envs
        self.protocol = protocol
        self.action_meanings = tuple(a.name for a in self._emulators.ale.get_action_set())
        self.num_actions = len(self.action_meanings)
        self.frame_shape = self._emulators.single_observation_space.shape
        self.frame_dtype = np.dtype(np.uint8)
        self.frames_per_step = protocol.frame_skip
        self.steps_per_second = FRAMES_PER_SECOND / protocol.frame_skip

    def reset(self) -> TimeStep:
        """Restart every stream from its seed; see `Environments.reset`."""
        frame, info = self._emulators.reset(seed=self._seed)
        if self._colour is not None:
            self._picture = self._colour.reset(seed=self._seed)[0]
        self._accounting.reset()
        self._lives = info["lives"]
        self._game_began = _game_began(info)
        if self._blanks is not None:
            self._blanks.reset(self._seed)
            self._blanks.blank(frame)
        reward, is_first = np.zeros(self.num_envs, np.float32), np.ones(self.num_envs, bool)
        return TimeStep(frame, reward, is_first, (), ())

    def step(self, action: Int[np.ndarray, " B"]) -> TimeStep:
        """Play `action` for `frames_per_step` frames; see `Environments.step`."""
        check_action(action, self.num_envs, self.num_actions)
        frame, reward, terminated, truncated, info = self._advance(action.astype(np.int64))
        if self._blanks is not None:
            self._blanks.blank(frame)
        game_began = _game_began(info)
        game_over = game_began != self._game_began
        # ale-py's own rule for a lost life: in some games, the last life shows a count of zero.
        life_over = game_over | ((info["lives"] < self._lives) & (info["lives"] > 0))
        # The old game ended where the new game began, some frames ago.
        clock = np.where(game_over, game_began, info["frame_number"])
        self._lives, self._game_began = info["lives"], game_began
        reward = reward.astype(np.float32)
        episodes, lives = self._accounting.record(reward, life_over, game_over, clock)
        cut_off = self._cut_off(truncated & ~terminated, info) if self._tell_cut_off else None
        return TimeStep(frame, reward, terminated | truncated, episodes, lives, cut_off)

    def _cut_off(self, cut: Bool[np.ndarray, " B"], info: dict[str, np.ndarray]) -> CutOff | None:
        if not cut.any():
            return None
        streams = np.flatnonzero(cut)
        frame = info["final_obs"][streams]
        if self._blanks is not None:
            self._blanks.blank_last(frame, streams)
        return CutOff(streams, frame)

    def render(self) -> UInt8[np.ndarray, "B H W 3"]:
        """Return the current pictures in colour, at the console's size (210x160 for most games).

        Raises:
            ValueError: created without `render=True`, or before the first `reset`.
        """
        if self._picture is None:
            raise ValueError("render() needs render=True at construction and an earlier reset()")
        return self._picture[:, 0]

    def close(self) -> None:
        """Stop the emulation threads: release the environments that own them."""
        self._emulators = self._colour = self._picture = None

    def _advance(self, action: Int[np.ndarray, " B"]) -> tuple:
        if self._colour is None:
            return self._emulators.step(action)
        # Step both at the same time; each has its own threads.
        self._emulators.send(action)
        self._colour.send(action)
        row = self._emulators.recv()
        self._picture, reward, *_, info = self._colour.recv()
        assert (reward == row[1]).all() and (info["lives"] == row[4]["lives"]).all()
        return row


def _game_began(info: dict[str, np.ndarray]) -> Int[np.ndarray, " B"]:
    return info["frame_number"] - info["episode_frame_number"]


def _emulators(rom: str, num_envs: int, protocol: Protocol, num_threads: int, **picture: object):
    """Make ale-py's vector environment with every flag given, because defaults have changed."""
    from ale_py.vector_env import AtariVectorEnv

    picture = {
        "img_height": 84,
        "img_width": 84,
        "grayscale": True,
        "stack_num": protocol.frame_stack,
        **picture,
    }
    return AtariVectorEnv(
        rom,
        num_envs,
        batch_size=num_envs,
        num_threads=num_threads,
        thread_affinity_offset=-1,
        autoreset_mode=AutoresetMode.SAME_STEP,
        frameskip=protocol.frame_skip,
        maxpool=protocol.max_pool,
        repeat_action_probability=protocol.sticky,
        noop_max=protocol.noop_max,
        use_fire_reset=protocol.fire_at_reset,
        full_action_space=protocol.full_action_set,
        continuous=False,
        episodic_life=False,
        life_loss_info=protocol.life_signal,
        max_num_frames_per_episode=_NEVER if protocol.max_frames is None else protocol.max_frames,
        reward_clipping=False,
        **picture,
    )


def _colour_twin(rom: str, num_envs: int, protocol: Protocol, num_threads: int):
    """Make the same games in colour; equal seeds and actions give equal random draws.

    ale-py's vector environment returns only one kind of picture, and the learner needs small grey
    ones.
    """
    height, width = _screen_size(rom)
    return _emulators(
        rom,
        num_envs,
        protocol,
        num_threads,
        img_height=height,
        img_width=width,
        grayscale=False,
        stack_num=1,
    )


def _screen_size(rom: str) -> tuple[int, int]:
    from ale_py import ALEInterface, roms

    console = ALEInterface()
    console.loadROM(roms.get_rom_path(rom))
    return console.getScreenDims()
