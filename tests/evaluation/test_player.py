"""What the network is shown while it plays."""

import torch

from fastweights import envs
from fastweights.agents.network import Network, NetworkConfig
from fastweights.evaluation.player import BLOCK, Player


def test_every_game_s_last_action_is_fed_to_the_network():
    games, steps, fed = BLOCK + 4, 12, []
    config = NetworkConfig(
        frame_shape=(4,), num_actions=3, core="feedforward", feed_last_action=True
    )
    network = Network(config)
    network.register_forward_pre_hook(lambda _, seen: fed.append(seen[3]))
    player = Player(network, envs.make("TMaze", games), action_mode="sampled", seed=5)
    acted = torch.stack([player.step().action for _ in range(steps)])
    seen = torch.cat(fed).view(steps, 2 * BLOCK)[:, :games]  # two blocks a step
    assert not seen[0].any() and torch.equal(seen[1:], acted[:-1])
    assert len(acted.unique()) == 3
