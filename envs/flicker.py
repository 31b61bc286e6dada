"""Pictures that are blanked at random, so that an agent needs memory to play.

Hausknecht and Stone 2015, Deep Recurrent Q-Learning for Partially Observable MDPs
(arXiv:1507.06527), section 5: at each agent step the screen is fully obscured with probability 0.5.
"""

import numpy as np
from jaxtyping import Float, UInt8

from fastweights.envs.protocols import Protocol

_STREAM = 0xF11C  # separates these draws from others of the same seed


class Blanks:
    """Blanks pictures in a batch of frame stacks.

    A picture is blank (all zero) with probability `protocol.flicker`, independently of all others.
    It stays blank or visible as long as it is in the stack. Environment `i` draws from its own
    seed, once per agent step, so its draws do not depend on the number of environments.
    """

    def __init__(self, num_envs: int, protocol: Protocol):
        self._num_envs = num_envs
        self._probability = protocol.flicker
        self._stack = protocol.frame_stack

    def reset(self, seed: int) -> None:
        """Restart the draws; environment `i` has the seed `seed + i`."""
        self._generators = [
            np.random.default_rng((seed + i, _STREAM)) for i in range(self._num_envs)
        ]
        self._hidden = np.zeros((self._num_envs, self._stack), bool)  # newest last

    def blank(self, frame: UInt8[np.ndarray, "B C H W"]) -> None:
        """Draw for the newest picture of each stack; blank the hidden pictures in place."""
        draws: Float[np.ndarray, " B"] = np.array([one.random() for one in self._generators])
        self._hidden = np.roll(self._hidden, -1, axis=1)
        self._hidden[:, -1] = draws < self._probability
        frame[self._hidden] = 0

    def blank_last(self, frame: UInt8[np.ndarray, "N C H W"], streams: np.ndarray) -> None:
        """Blank the last stacks of cut-off games in the positions that are hidden now."""
        frame[self._hidden[streams]] = 0
