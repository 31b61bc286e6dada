"""An episode as a sequence of moments, one per agent step."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastweights.envs import Environments, NoPictures
from fastweights.evaluation.player import Player


class Moment(NamedTuple):
    """One row of the first stream: the observation, the decision, and the memory after it."""

    step: int  # agent steps played before this moment
    picture: np.ndarray | None  # [H, W, 3] uint8, as drawn by the game; None if it does not draw
    frame: np.ndarray  # the network's input
    policy: np.ndarray  # [A] probabilities
    value: float
    action: int
    reward: float  # of the action, unclipped
    layers: list[dict[str, np.ndarray]]  # `Core.inspect` of this row, without the batch axis
    is_first: bool  # the memory was reset before this row
    life_lost: bool  # by the action; true for the game's last life, too
    game_over: bool  # by the action


def moments(player: Player) -> Iterator[Moment]:
    """Yield the rest of the first environment's game, with pictures if it draws them.

    When a moment is yielded, `player` has already taken its action.
    """
    step, over = 0, False
    while not over:
        row, picture = player.row, _picture(player.environments)
        layers = [_first(layer) for layer in player.inspect()]
        decision = player.step()
        over = any(episode.env == 0 for episode in player.row.episodes)
        yield Moment(
            step=step,
            picture=picture,
            frame=row.frame[0],
            policy=decision.policy_logits[0].softmax(-1).cpu().numpy(),
            value=float(decision.value[0]),
            action=int(decision.action[0]),
            reward=float(player.row.reward[0]),
            layers=layers,
            is_first=bool(row.is_first[0]),
            life_lost=any(life.env == 0 for life in player.row.lives),
            game_over=over,
        )
        step += 1


def _picture(environments: Environments) -> np.ndarray | None:
    try:
        return environments.render()[0]
    except NoPictures:
        return None


def _first(layer: dict) -> dict[str, np.ndarray]:
    return {name: tensor[0].float().cpu().numpy() for name, tensor in layer.items()}
