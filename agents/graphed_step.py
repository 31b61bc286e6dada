"""The acting step as a CUDA graph: the host starts what a GPU does with one call, not with each.

A step for a few dozen streams is some hundred small launches, which take the host longer to ask
for than the GPU to do. Recorded once, they are replayed: in the same memory, so inputs are copied
to where the recorded step reads them, and outputs from where it writes them.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from agents.network import Network, NetworkOutput
from kernels.recurrence import State, map_state

Replay = Callable[[], object]
Record = Callable[[Callable[[], Any], torch.device], tuple[Any, Replay]]

_WARM_UPS = 3  # kernels are loaded, libraries choose theirs and allocate
_one_records = threading.Lock()


def record(call: Callable[[], Any], device: torch.device) -> tuple[Any, Replay]:
    """What `call()` returns, in memory that each replay writes anew, and that replay.

    Other threads may go on using the GPU meanwhile. Raises a `RuntimeError` for a call that waits
    for the GPU, or copies to it from memory that is not pinned.
    """
    with _one_records, torch.cuda.device(device):
        for _ in range(_WARM_UPS):
            call()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            outputs = call()
        return outputs, graph.replay


class GraphedStep:
    """A network's forward pass for acting, recorded at its first call by `record`.

    All calls have the shapes and dtypes of the first. Weights are read where they are: optimisers
    and `load_state_dict` change them in place, and the next replay sees that. What cannot be
    recorded is warned of, once for each network, and runs as it would without.
    """

    def __init__(self, network: Network, record: Record = record):
        self._network, self._record = network, record
        self._seen: tuple[Any, ...] = ()
        self._acted: tuple[NetworkOutput, Any] | None = None
        self._replay: Replay | None = None

    @torch.no_grad()
    def __call__(self, *seen: Any) -> tuple[NetworkOutput, State]:
        """As `Network.forward`, with the same bits but for cuDNN's LSTM: `kernels.lstm.fused`."""
        if not self._seen:
            self._begin(seen)
        if self._replay is None:
            return self._network(*seen)
        for place, given in zip(_tensors(self._seen), _tensors(seen), strict=True):
            place.copy_(given)
        self._replay()
        return map_state(torch.clone, self._acted)

    def _begin(self, seen: tuple[Any, ...]) -> None:
        self._seen = map_state(torch.clone, seen)
        device = next(_tensors(seen)).device
        try:
            self._acted, self._replay = self._record(lambda: self._network(*self._seen), device)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            text = f"the acting step cannot be a CUDA graph, and is launched as usual: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _tensors(nested: Any) -> Iterator[Tensor]:
    for part in nested:
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _tensors(part)
