"""Games for actors in other processes: `--env ray_games:StampedCatch-v0`."""

import contextlib
import os
import signal
from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector.utils import batch_space

from fastweights.envs.catch import Catch
from fastweights.training.seeds import environment_seed

SEED_UNIT, STEP_UNIT = 2.0**-14, 2.0**-20  # exact, and so small that Catch can still be learned


class Broken(Exception):
    pass


class StampedCatch(Catch):
    """Catch whose frames also tell the seed of a stream and the number of its steps.

    The `breaks_at`-th step raises. At the `stops_at`-th step, the first process that can create the
    file `stops_as` writes its number into it and stops. 0 switches either off.
    """

    def __init__(self, num_envs=1, render_mode=None, breaks_at=0, stops_at=0, stops_as=""):
        super().__init__(num_envs, render_mode)
        (size,) = self.single_observation_space.shape
        self.single_observation_space = Box(0.0, 1.0, (size + 2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.breaks_at, self.steps, self.seeds = breaks_at, 0, np.zeros(num_envs)
        self.stops_at, self.stops_as = stops_at, Path(stops_as)

    def reset(self, *, seed=None, options=None):
        self.steps, self.seeds = 0, (seed + np.arange(self.num_envs)) % 2**14
        return super().reset(seed=seed, options=options)

    def step(self, actions):
        self.steps += 1
        if self.steps == self.breaks_at:
            raise Broken(f"at step {self.steps}")
        if self.steps == self.stops_at and not self.stops_as.exists():
            number = self.stops_as.with_suffix(f".{os.getpid()}")
            number.write_text(str(os.getpid()))
            with contextlib.suppress(FileExistsError):
                os.link(number, self.stops_as)
                os.kill(os.getpid(), signal.SIGSTOP)
        return super().step(actions)

    def _observe(self):
        stamps = np.stack([self.seeds * SEED_UNIT, np.full(self.num_envs, self.steps * STEP_UNIT)])
        return np.concatenate([super()._observe(), stamps.T], 1).astype(np.float32)


def expected_seeds(seed: int) -> list[set[int]]:
    """Return the possible sets of streams: the first or the second actor was killed."""

    def streams(first: int, count: int) -> set[int]:
        return {(first + i) % 2**14 for i in range(count)}

    begun = streams(environment_seed(seed, 0), 48)
    again = [environment_seed(seed, 0, start, 1) for start in (0, 24)]
    return [begun | streams(one, 24) for one in again]


def assert_streams_in_order(seen, seeds) -> None:
    stamps = torch.cat([frames.flatten(0, 1) for frames in _in_columns(seen)])
    stream, step = (stamps[:, 0] / SEED_UNIT).long(), (stamps[:, 1] / STEP_UNIT).long()
    assert set(stream.tolist()) in seeds
    for one in stream.unique():
        own = step[stream == one]
        assert torch.equal(own, torch.arange(len(own)))


def _in_columns(seen):
    """Order the frames of each batch stream by stream."""
    return [frames.transpose(0, 1) for frames in seen]


gymnasium.register("StampedCatch-v0", vector_entry_point=StampedCatch)
