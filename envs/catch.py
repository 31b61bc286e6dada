"""Catch: a ball falls, and a paddle must catch it. Needs no memory; learned in seconds.

    . . o . .     10 rows, 5 columns. The ball starts in a random column of the top row and falls
    . . . . .     one row per step; the paddle starts in the middle of the bottom row and moves one
      ...         column per step. After nine steps: +1 if the ball lands on the paddle, else -1.
    . . _ . .

Source: Osband et al. 2020, Behaviour Suite for Reinforcement Learning (ICLR), after Mnih et al.
2014, Recurrent Models of Visual Attention.
"""

import numpy as np
from gymnasium.spaces import Box

from fastweights.envs.vector_game import BLUE, RED, VectorGame, vector_space

ROWS, COLUMNS = 10, 5
_PIXELS = 4  # side of a cell with `pictures`


class Catch(VectorGame):
    """A batch of Catch games.

    Observation: float32 [50], the board row by row, with 1 at the ball and at the paddle (a single
    1 where they meet). With `pictures`: uint8 [1, 40, 20], 4 x 4 pixels per cell, 255 instead of 1.
    Actions: left, stay, right. The paddle cannot leave the board. A game has nine steps.

    Args:
        num_envs: number of games.
        pictures: observe images instead of vectors, for convolutional stems.
        render_mode: `rgb_array` for `render`, or None.
    """

    def __init__(self, num_envs: int = 1, pictures: bool = False, render_mode: str | None = None):
        shape = (1, ROWS * _PIXELS, COLUMNS * _PIXELS)
        space = Box(0, 255, shape, np.uint8) if pictures else vector_space(ROWS * COLUMNS)
        super().__init__(num_envs, space, ("left", "stay", "right"), render_mode)
        self._pictures = pictures
        self._ball = np.zeros((num_envs, 2), np.int64)  # row, column
        self._paddle = np.zeros(num_envs, np.int64)
        self._games = np.arange(num_envs)

    def _begin(self, where):
        self._ball[where, 0] = 0
        self._ball[where, 1] = self._draw(where, COLUMNS)
        self._paddle[where] = COLUMNS // 2

    def _advance(self, action):
        self._paddle = np.clip(self._paddle + action - 1, 0, COLUMNS - 1)
        self._ball[:, 0] += 1
        landed = self._ball[:, 0] == ROWS - 1
        caught = np.where(self._ball[:, 1] == self._paddle, 1, -1)
        return (landed * caught).astype(np.float32), landed, np.zeros_like(landed)

    def _observe(self):
        if not self._pictures:
            return self._board(1, 1).reshape(self.num_envs, -1).astype(np.float32)
        cells = self._board(255, 255).astype(np.uint8)[:, None]
        return cells.repeat(_PIXELS, axis=2).repeat(_PIXELS, axis=3)

    def _cells(self):
        return self._board(RED, BLUE)

    def _board(self, ball: int, paddle: int):
        board = np.zeros((self.num_envs, ROWS, COLUMNS), np.int64)
        board[self._games, self._ball[:, 0], self._ball[:, 1]] = ball
        board[self._games, ROWS - 1, self._paddle] = paddle
        return board
