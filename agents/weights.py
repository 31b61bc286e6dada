"""Transfer of the learner's weights to actors, published and fetched by version."""

import threading

import torch

from fastweights.agents.network import Network


class WeightStore:
    """The newest published weights; thread-safe.

    A version is the number of updates that produced the weights. A rollout's lag is the learner's
    version at the update minus the version that acted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weights: dict[str, torch.Tensor] = {}
        self.version = -1

    def publish(self, network: Network, version: int) -> None:
        """Copy the network's weights, so that later updates do not change the copy."""
        weights = {name: w.detach().clone() for name, w in network.state_dict().items()}
        _finish(weights)
        with self._lock:
            self._weights, self.version = weights, version

    def refresh(self, network: Network, version: int) -> int:
        """Load the newest weights into `network` unless it has them already; return the version."""
        with self._lock:
            weights, newest = self._weights, self.version
        if newest > version:
            network.load_state_dict(weights)
            _finish(network.state_dict())  # afterwards the published copy may be freed
        return max(newest, version)


def _finish(weights: dict[str, torch.Tensor]) -> None:
    """On a GPU, wait for this thread's stream, because the next reader uses another stream."""
    for device in {weight.device for weight in weights.values() if weight.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
