"""T-maze: remember a cue through a corridor, then turn to the side that it indicated.

                             left
    start                     |         Only the first frame shows the cue. Then `corridor`
      o  .  .  .  .  .  .  .  +         steps lead to the junction, where the frame does
                              |         not depend on the cue.
                             right

An agent without memory turns to the wrong side in half of the games and scores 0 on average. With
memory it scores 1. Source: Bakker 2002, Reinforcement Learning with Long Short-Term Memory (NIPS
14), including its penalty for standing still; rewards are 1 and -1 here, 4 and -0.1 there.
"""

import numpy as np

from fastweights.envs.vector_game import BLUE, GREEN, INK, PAPER, RED, VectorGame, vector_space

FORWARD, LEFT, RIGHT = range(3)
STANDING_REWARD = -0.1  # Bakker 2002
_SPARE_STEPS = 9  # the prize and nine times STANDING_REWARD sum to more than 0


class TMaze(VectorGame):
    """A batch of T-mazes.

    Observation: float32 [4], (cue left, cue right, in the corridor, at the junction).
    Actions: forward, left, right. Turning in the corridor, or going forward at the junction, has no
    effect and a reward of -0.1. Turning at the junction ends the game: +1 on the side of the cue,
    else -1. A game is truncated after `corridor + 10` steps, nine more than needed. So an episode's
    return is above zero exactly if the agent turned to the side of the cue.

    Args:
        num_envs: number of games.
        corridor: steps from the start to the junction, at least 1.
        render_mode: `rgb_array` for `render`, or None.

    Raises:
        ValueError: `corridor` is below 1.
    """

    def __init__(self, num_envs: int = 1, corridor: int = 10, render_mode: str | None = None):
        if corridor < 1:
            raise ValueError(f"corridor must be at least 1, got {corridor}")
        super().__init__(num_envs, vector_space(4), ("forward", "left", "right"), render_mode)
        self.corridor = corridor
        self._max_steps = corridor + 1 + _SPARE_STEPS
        self._position = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)
        self._prize = np.full(num_envs, LEFT)  # the action that wins at the junction
        self._games = np.arange(num_envs)

    def _begin(self, where):
        self._position[where] = 0
        self._steps[where] = 0
        self._prize[where] = LEFT + self._draw(where, 2)

    def _advance(self, action):
        turned = self._at_junction() & (action != FORWARD)
        walked = ~self._at_junction() & (action == FORWARD)
        self._position += walked
        self._steps += 1
        reward = np.where(walked, 0.0, STANDING_REWARD)
        reward = np.where(turned, np.where(action == self._prize, 1.0, -1.0), reward)
        return reward.astype(np.float32), turned, ~turned & (self._steps >= self._max_steps)

    def _observe(self):
        cue = self._steps == 0
        left, right = cue & (self._prize == LEFT), cue & (self._prize == RIGHT)
        junction = self._at_junction()
        return np.stack([left, right, ~junction, junction], axis=1).astype(np.float32)

    def _at_junction(self):
        return self._position == self.corridor

    def _cells(self):
        """Draw the maze dark, the agent blue, the prize green and the cue (while shown) red."""
        cells = np.full((self.num_envs, 5, self.corridor + 3), INK)
        cells[:, 2, 1:-1] = PAPER
        cells[:, 1:4, -2] = PAPER
        cells[self._games, np.where(self._prize == LEFT, 1, 3), -2] = GREEN
        shown = np.flatnonzero(self._steps == 0)
        cells[shown, np.where(self._prize[shown] == LEFT, 1, 3), 1] = RED
        cells[self._games, 2, self._position + 1] = BLUE
        return cells
