"""An episode as a film shows it, one moment an agent step."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from agents.actor import Actor


class Moment(NamedTuple):
    """One row of the first stream: what was seen, what was decided, what the memory then held."""

    step: int  # agent steps played before this one
    picture: np.ndarray  # [H, W, 3] uint8, as the emulator draws it
    frame: np.ndarray  # what the network sees
    policy: np.ndarray  # [A] probabilities
    value: float
    action: int
    reward: float  # that the action earned, unclipped
    layers: list[dict[str, np.ndarray]]  # `Core.inspect` of this row, without the batch axis
    is_first: bool  # the memory was reset before this row
    life_lost: bool  # by the action, the game's last life too
    game_over: bool  # by the action


def moments(actor: Actor) -> Iterator[Moment]:
    """The rest of the first environment's present game; it must have been made to render.

    When a moment comes out, `actor` has just taken its action: `actor.state` is what it shows.
    """
    step, over = 0, False
    while not over:
        row, picture = actor.row, actor.environments.render()[0]
        layers = [_first(layer) for layer in actor.inspect()]
        decision = actor.step()
        over = any(episode.env == 0 for episode in actor.row.episodes)
        yield Moment(
            step=step,
            picture=picture,
            frame=row.frame[0],
            policy=decision.policy_logits[0].softmax(-1).cpu().numpy(),
            value=float(decision.value[0]),
            action=int(decision.action[0]),
            reward=float(actor.row.reward[0]),
            layers=layers,
            is_first=bool(row.is_first[0]),
            life_lost=any(life.env == 0 for life in actor.row.lives),
            game_over=over,
        )
        step += 1


def _first(layer: dict) -> dict[str, np.ndarray]:
    return {name: tensor[0].float().cpu().numpy() for name, tensor in layer.items()}
