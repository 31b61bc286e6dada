"""How the learner's weights reach actors: published by version, pulled when newer."""

import threading

import torch

from fastweights.agents.network import Network


class WeightStore:
    """Holds the newest published weights; safe to use from several threads.

    A version is the number of updates behind the weights. The lag of a rollout is the learner's
    version when it learns from it minus the version that acted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weights: dict[str, torch.Tensor] = {}
        self.version = -1

    def publish(self, network: Network, version: int) -> None:
        """Copies the network's weights, so that later updates do not show through."""
        weights = {name: w.detach().clone() for name, w in network.state_dict().items()}
        _finish(weights)
        with self._lock:
            self._weights, self.version = weights, version

    def refresh(self, network: Network, version: int) -> int:
        """Loads the newest weights into `network` unless it has them; returns their version."""
        with self._lock:
            weights, newest = self._weights, self.version
        if newest > version:
            network.load_state_dict(weights)
            _finish(network.state_dict())  # then the published copy may be dropped
        return max(newest, version)


def _finish(weights: dict[str, torch.Tensor]) -> None:
    """On a GPU, waits for what this thread's stream does with them: the next reader has its own."""
    for device in {weight.device for weight in weights.values() if weight.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
