"""Any Gymnasium environment as `Environments`: one life per episode, one frame per agent step."""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from jaxtyping import Int, UInt8

from fastweights.envs.accounting import Accounting
from fastweights.envs.actions import action_format
from fastweights.envs.checked import (
    CopiesLast,
    WithoutInfo,
    check_outcomes,
    check_parts,
    checked,
    checked_batch,
    with_last_observations,
)
from fastweights.envs.constructors import check_can_draw, check_kinds, constructor, expected, takes
from fastweights.envs.interface import (
    BrokenEnvironment,
    CutOff,
    Restorable,
    TimeStep,
    check_action,
    check_batch,
    check_finite,
)
from fastweights.envs.observations import frame_format
from fastweights.envs.pictures import NoPictures, as_pictures
from fastweights.host import did_you_mean, one_line, reporting_exit, saying_where

UNKNOWN_SPEED = 8.0  # steps per second for games without `render_fps`


class GymnasiumEnvironments:
    """A Gymnasium vector environment with the interface `Environments`.

    The step after a terminated or truncated episode has `is_first` set. Frames are converted by
    `observations.frame_format`, and actions by `actions.action_format`.

    Args:
        vector_env: environment with same-step autoreset. `close` closes it.
        name: name for messages and logs.
        seed: environment `i` starts from seed `seed + i`.
        tell_cut_off: fill `TimeStep.cut_off`.

    Raises:
        ValueError: another autoreset mode, or an unsupported space.
    """

    def __init__(self, vector_env: VectorEnv, *, name: str, seed: int, tell_cut_off: bool = False):
        check_batch(vector_env.num_envs, seed)
        _check_autoreset(vector_env, name)
        actions = action_format(vector_env.single_action_space, name)
        self._vector_env = vector_env
        self._tell_cut_off = tell_cut_off
        self._seed = seed
        self._to_action = actions.convert
        self._space = vector_env.single_observation_space
        self._format = frame_format(self._space, name)
        self._accounting = Accounting(vector_env.num_envs)
        self._clock = np.zeros(vector_env.num_envs, np.int64)
        self.name = name
        self.num_envs = vector_env.num_envs
        self.num_actions = actions.count
        self.action_meanings = getattr(vector_env, "action_meanings", actions.meanings)
        self.frame_shape = self._format.shape
        self.frame_dtype = self._format.dtype
        self.frames_per_step = 1
        self.steps_per_second = _steps_per_second(vector_env.metadata)
        self._drawn: tuple[int, ...] | None = None  # the shape of pictures, set by the first one

    def reset(self) -> TimeStep:
        """Restart every stream from its seed; see `Environments.reset`."""
        with self._reporting_exit("reset()"):
            result = self._vector_env.reset(seed=self._seed)
        observation, _ = check_parts(result, "reset", self.name)
        observation = checked_batch(observation, self._space, self.num_envs, "reset", self.name)
        self._accounting.reset()
        self._clock[:] = 0
        reward, is_first = np.zeros(self.num_envs, np.float32), np.ones(self.num_envs, bool)
        return TimeStep(self._frame(observation), reward, is_first, (), ())

    def step(self, action: Int[np.ndarray, " B"]) -> TimeStep:
        """Step all environments; see `Environments.step`."""
        check_action(action, self.num_envs, self.num_actions)
        converted = self._to_action(action.astype(np.int64))
        with self._reporting_exit("step(), or the reset() after an episode,"):
            result = self._vector_env.step(converted)
        observation, reward, terminated, truncated, info = check_parts(result, "step", self.name)
        observation = checked_batch(observation, self._space, self.num_envs, "step", self.name)
        check_outcomes(reward, terminated, truncated, self.num_envs, self.name)
        self._clock += 1
        frame, single = self._frame(observation), self._reward(np.asarray(reward))
        over = np.logical_or(terminated, truncated)
        episodes, lives = self._accounting.record(reward, over, over, self._clock)
        cut_off = None
        if self._tell_cut_off:
            cut = np.logical_and(truncated, np.logical_not(terminated))
            cut_off = self._cut_off(np.flatnonzero(cut), observation, info)
        return TimeStep(frame, single, over, episodes, lives, cut_off)

    def _reporting_exit(self, what: str) -> AbstractContextManager[None]:
        return reporting_exit(f"{self.name}: {what}", BrokenEnvironment)

    def _cut_off(
        self, streams: Int[np.ndarray, " N"], observation: Any, info: Any
    ) -> CutOff | None:
        if not len(streams):
            return None
        last = with_last_observations(self._vector_env, observation, info, streams, self.name)
        return CutOff(streams, self._frame(last)[streams])

    def snapshot(self) -> dict[str, Any] | None:
        """Return the games' states; None unless the vector environment can be restored."""
        if not isinstance(self._vector_env, Restorable):
            return None
        game = self._vector_env.snapshot()
        if game is None:
            return None
        accounting = self._accounting.snapshot()
        return {"game": game, "accounting": accounting, "clock": self._clock.copy()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore the games' states; see `Restorable.restore`."""
        self._vector_env.restore(snapshot["game"])
        self._accounting.restore(snapshot["accounting"])
        self._clock[:] = snapshot["clock"]

    def _frame(self, observation: Any) -> np.ndarray:
        with np.errstate(over="ignore"):  # an overflow gives infinity, which _check reports
            frame = self._format.convert(observation)
        if self.frame_dtype.kind == "f":
            self._check("observation", frame)
        return frame

    def _reward(self, reward: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            single = reward.astype(np.float32)
        self._check("reward", single)
        return single

    def _check(self, what: str, values: np.ndarray) -> None:
        check_finite(what, values, name=self.name, seed=self._seed, steps=self._clock)

    def render(self) -> UInt8[np.ndarray, "B H W 3"]:
        """Return the current pictures.

        Raises:
            NoPictures: the environments were created without `render=True`, or do not store it.
            BrokenEnvironment: the game's `render` raises, or returns no picture or one whose size
                differs from before.
        """
        if self._vector_env.render_mode is None:
            raise NoPictures(
                f"{self.name} draws no pictures: create it with render=True, and set "
                "self.render_mode in its constructor"
            )
        with self._reporting_exit("render()"):
            try:
                rendered = self._vector_env.render()
            except gymnasium.error.Error:  # such as a package that is not installed
                raise
            except Exception as error:
                said = one_line(f"{type(error).__name__}: {error}")
                raise BrokenEnvironment(f"{self.name}: render() raised {said}") from error
        pictures = as_pictures(rendered, self.name, self._drawn)
        self._drawn = pictures.shape[1:]
        return pictures

    def close(self) -> None:
        """Close the Gymnasium environment."""
        with self._reporting_exit("close()"):
            self._vector_env.close()


def _is_of_value(error: Exception, options: Mapping[str, object]) -> bool:
    """Return whether the error is a failed look-up of a value, as of FrozenLake's map names."""
    return isinstance(error, KeyError) and any(key in options.values() for key in error.args)


def make_gymnasium(
    gymnasium_id: str,
    num_envs: int,
    *,
    display: str,
    seed: int,
    options: Mapping[str, object],
    render: bool,
    tell_cut_off: bool = False,
) -> GymnasiumEnvironments:
    """Make `num_envs` environments of a registered Gymnasium id.

    Args:
        gymnasium_id: such as `CartPole-v1`, or `my_module:MyGame-v0` to import its module.
        num_envs: B.
        display: name for messages and logs.
        seed: environment `i` starts from seed `seed + i`.
        options: keyword arguments for the environment's constructor.
        render: also draw `rgb_array` pictures.
        tell_cut_off: fill `TimeStep.cut_off`.

    Raises:
        ValueError: as in `GymnasiumEnvironments`; also an option that the constructor does not
            accept, a value of the wrong type, or a package that is not installed. Other errors of
            the environment are raised unchanged.
    """
    check_batch(num_envs, seed)
    keywords = {**options, "render_mode": "rgb_array"} if render else dict(options)
    # Prefer the scalar form if both exist: a vector form may use another autoreset mode.
    spec = copy.deepcopy(gymnasium.spec(gymnasium_id.rpartition(":")[2]))
    spec.disable_env_checker = True  # `Checked` has one-line errors, and lets any game be drawn
    vectorised = spec.entry_point is None
    wrappers = [WithoutInfo, CopiesLast] if tell_cut_off else [WithoutInfo]
    try:
        check_kinds(gymnasium_id, display, options)
        if render:
            check_can_draw(spec, display)
        if not vectorised:
            spec.entry_point = checked(constructor(spec), display)
        with saying_where(), reporting_exit(f"the constructor of {display}", BrokenEnvironment):
            vector_env = gymnasium.make_vec(
                spec,
                num_envs,
                vectorization_mode="vector_entry_point" if vectorised else "sync",
                vector_kwargs=None if vectorised else {"autoreset_mode": AutoresetMode.SAME_STEP},
                wrappers=None if vectorised else wrappers,
                **keywords,
            )
    except (TypeError, LookupError) as error:
        if not _is_of_value(error, options) and takes(gymnasium_id, keywords):
            raise  # a bug in the environment
        raise ValueError(_wrong_options(gymnasium_id, display, options, error)) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"{display} cannot be created here: {one_line(str(error))}") from error
    try:
        return GymnasiumEnvironments(vector_env, name=display, seed=seed, tell_cut_off=tell_cut_off)
    except ValueError:
        vector_env.close()
        raise


def _steps_per_second(metadata: Mapping[str, Any]) -> float:
    """Return `render_fps` from a game's metadata; `UNKNOWN_SPEED` unless it is a number above 0."""
    speed = metadata.get("render_fps")
    is_speed = isinstance(speed, Real) and not isinstance(speed, bool)
    return float(speed) if is_speed and 0 < speed < np.inf else UNKNOWN_SPEED


def _wrong_options(
    gymnasium_id: str, display: str, options: Mapping[str, object], error: Exception
) -> str:
    known = expected(gymnasium_id)
    hints = [did_you_mean(name, known) for name in options if name not in known]
    wrong = f"does not take the options {dict(options)}" if options else "needs options"
    return (
        f"{display} {wrong} ({type(error).__name__}: {error}); "
        f"it has: {_listed(known)}{''.join(hints[:1])}"
    )


def _listed(options: Mapping[str, str]) -> str:
    words = (f"{name} ({kind})" if kind else name for name, kind in options.items())
    return ", ".join(words) or "none"


def _check_autoreset(vector_env: VectorEnv, name: str) -> None:
    mode = vector_env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.SAME_STEP:
        raise ValueError(
            f"{name} must reset in the same step (AutoresetMode.SAME_STEP), not {mode}: set that "
            "mode, or register a single game (gymnasium.Env) as its entry_point"
        )
