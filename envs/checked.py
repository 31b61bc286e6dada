"""Checks that a user's environment returns what its spaces declare."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from jaxtyping import Int

from fastweights.envs.interface import BrokenEnvironment
from fastweights.envs.observations import in_one_line, parts, parts_of

_RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}


class Checked(gymnasium.Wrapper):
    """A wrapper that raises `BrokenEnvironment` if `env` does not return what it declares.

    Args:
        env: the environment.
        name: the environment's name in error messages.
    """

    def __init__(self, env: gymnasium.Env, name: str):
        super().__init__(env)
        self._name = name
        for space in ("observation_space", "action_space"):
            if getattr(env, space, None) is None:
                raise BrokenEnvironment(f"{name} has no {space}: set self.{space} in __init__")
        self._fits = _membership(env.observation_space)
        parameters = inspect.signature(env.reset).parameters
        takes_all = any(one.kind == one.VAR_KEYWORD for one in parameters.values())
        missing = [one for one in ("seed", "options") if one not in parameters]
        if missing and not takes_all:
            raise BrokenEnvironment(
                f"{name}: reset() does not take {missing[0]!r}: "
                "declare reset(self, *, seed=None, options=None)"
            )

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Call the environment's `reset` and check its result; see `gymnasium.Env.reset`."""
        result = check_parts(self.env.reset(seed=seed, options=options), "reset", self._name)
        self._check_observation(result[0], "reset")
        self._check_info(result[1], "reset")
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """Call the environment's `step` and check its result; see `gymnasium.Env.step`."""
        result = check_parts(self.env.step(action), "step", self._name)
        self._check_observation(result[0], "step")
        reward = result[1]
        if type(reward) is not float and not _is_scalar(reward, "biuf"):
            raise BrokenEnvironment(
                f"{self._name}: step() returned the reward {_short(reward)}: return one number"
            )
        for what, ended in (("terminated", result[2]), ("truncated", result[3])):
            if type(ended) is not bool and not _is_scalar(ended, "biu"):
                raise BrokenEnvironment(
                    f"{self._name}: step() returned {what} = {_short(ended)}: return true or false"
                )
        self._check_info(result[4], "step")
        return result

    def _check_info(self, info: Any, method: str) -> None:
        if not isinstance(info, dict):
            raise BrokenEnvironment(
                f"{self._name}: {method}() returned the info {_short(info)}: return a dict"
            )

    def _check_observation(self, observation: Any, method: str) -> None:
        space = self.env.observation_space
        if isinstance(space, Box):
            array = _array(observation)
            if array.shape == space.shape and np.can_cast(array.dtype, space.dtype, "same_kind"):
                return
            given = f"shape {array.shape} and kind {array.dtype}"
            if array.dtype.kind == "O":
                given = _short(observation)
        else:
            if self._fits(observation):
                return
            given = _short(observation)
        raise BrokenEnvironment(_other_observation(self._name, method, given, space))


class CopiesLast(gymnasium.Wrapper):
    """A wrapper that copies the last observation of a cut-off episode.

    Before it is read, the vector environment resets `env`, which may write to the same array.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """Step the environment; see `gymnasium.Env.step`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated:
            observation = copy.deepcopy(observation)
        return observation, reward, terminated, truncated, info


class WithoutInfo(gymnasium.Wrapper):
    """A wrapper that drops the info, which is not used here.

    A vector environment would put each entry of all its games in one array, but valid games may
    return entries whose shape or type varies, such as lists of legal moves.
    """

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Reset the environment; see `gymnasium.Env.reset`."""
        return self.env.reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """Step the environment; see `gymnasium.Env.step`."""
        return *self.env.step(action)[:4], {}


def _array(value: Any) -> np.ndarray:
    """Return `value` as an array; if its rows differ in length, as a 0-d array of one object."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        array = np.empty((), object)
        array[()] = value
        return array


def _is_scalar(value: Any, kinds: str) -> bool:
    """Return whether `value` is a scalar number of one of NumPy's `kinds` of dtype."""
    array = _array(value)
    return array.ndim == 0 and array.dtype.kind in kinds


def _membership(space: Space) -> Callable[[Any], bool]:
    """Return `space.contains`, faster for Python integers and tuples of them.

    Gymnasium looks up the integer type's limits on every call, which takes longer than a step of
    many games.
    """
    if type(space) is Discrete:
        values = range(int(space.start), int(space.start + space.n))
        return lambda value: (type(value) is int and value in values) or space.contains(value)
    if type(space) is Tuple:
        fits = [_membership(part) for part in space.spaces]

        def fit_all(value: Any) -> bool:
            if type(value) is not tuple or len(value) != len(fits):
                return space.contains(value)
            return all(fit(part) for fit, part in zip(fits, value, strict=True))

        return fit_all
    return space.contains


def checked(creator: Callable[..., gymnasium.Env], name: str) -> Callable[..., gymnasium.Env]:
    """Return a function like `creator` that wraps the environments it creates in `Checked`."""

    def create(**options: Any) -> gymnasium.Env:
        made = creator(**options)
        return Checked(made, name) if isinstance(made, gymnasium.Env) else made

    if hasattr(creator, "metadata"):  # Gymnasium looks up the render modes here
        create.metadata = creator.metadata
    return create


def check_parts(result: Any, method: str, name: str) -> tuple:
    """Return `result`, of `reset` or `step`; raise `BrokenEnvironment` for too few values."""
    wanted = _RETURNED[method]
    if not isinstance(result, tuple) or len(result) != len(wanted):
        count = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise BrokenEnvironment(f"{name}: {method}() returned {count}: return {', '.join(wanted)}")
    return result


def checked_batch(observation: Any, space: Space, num_envs: int, method: str, name: str) -> Any:
    """Return a batch of `num_envs` observations of `space`, as arrays.

    Raises:
        BrokenEnvironment: it is another value; `method` of the environment `name` returned it.
    """
    if isinstance(space, Tuple | Dict):
        try:
            pairs = list(zip(parts(space), parts_of(observation, space), strict=True))
        except (TypeError, LookupError, ValueError) as error:
            raise BrokenEnvironment(
                _other_observation(name, method, _short(observation), space)
            ) from error
        arrays = [checked_batch(values, part, num_envs, method, name) for part, values in pairs]
        return dict(zip(space.spaces, arrays, strict=True)) if isinstance(space, Dict) else arrays
    array = _array(observation)
    if array.shape != (num_envs, *(space.shape or ())):
        given = f"shape {array.shape} for {num_envs} environments"
        raise BrokenEnvironment(_other_observation(name, method, given, space))
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise BrokenEnvironment(_other_observation(name, method, f"kind {array.dtype}", space))
    if isinstance(space, Discrete | MultiDiscrete):  # one-hot vectors have no place for others
        size = space.n if isinstance(space, Discrete) else space.nvec
        outside = array[(array < space.start) | (array >= space.start + size)]
        if outside.size:
            raise BrokenEnvironment(_other_observation(name, method, str(outside[0]), space))
    return array


def with_last_observations(
    vector_env: VectorEnv,
    observation: Any,
    info: Any,
    streams: Int[np.ndarray, " N"],
    name: str,
) -> Any:
    """Return the batch `observation`, but for `streams` the last ones of their old episodes.

    Raises:
        BrokenEnvironment: `info` of `vector_env.step` does not contain them.
    """
    final = info.get("final_obs") if isinstance(info, dict) else None
    if final is None:
        raise BrokenEnvironment(
            f"{name}: step() cuts episodes off (truncated) without info['final_obs'], which "
            "--bootstrap-truncated needs: return the last observations there, as Gymnasium's "
            "vector environments do"
        )
    single = vector_env.single_observation_space
    batched = batch_space(single, vector_env.num_envs)
    each = list(iterate(batched, observation))
    try:
        unbatched = isinstance(final, np.ndarray) and final.dtype == object
        by_env = final if unbatched else list(iterate(batched, final))
        for stream in streams:
            each[stream] = by_env[stream]
        return concatenate(single, each, create_empty_array(single, len(each)))
    except (TypeError, LookupError, ValueError) as error:
        raise BrokenEnvironment(
            f"{name}: step() returned info['final_obs'] = {_short(final)}: return one observation "
            f"of {in_one_line(single)} for each environment"
        ) from error


def check_outcomes(reward: Any, terminated: Any, truncated: Any, num_envs: int, name: str) -> None:
    """Raise `BrokenEnvironment` unless a batch's step returned one of each per environment."""
    for what, values, kinds, words in (
        ("rewards", reward, "biuf", "numbers"),
        ("terminated", terminated, "biu", "truth values"),
        ("truncated", truncated, "biu", "truth values"),
    ):
        array = _array(values)
        if array.shape != (num_envs,) or array.dtype.kind not in kinds:
            raise BrokenEnvironment(
                f"{name}: step() returned {what} of shape {array.shape} and kind {array.dtype}: "
                f"return {num_envs} {words}, one per environment"
            )


def _other_observation(name: str, method: str, given: str, space: Space) -> str:
    return (
        f"{name}: {method}() returned an observation of {given}, but its observation_space is "
        f"{in_one_line(space)}: make them agree"
    )


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:40]}..."
