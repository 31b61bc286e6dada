"""The acting step as a CUDA graph: the host starts a hundred kernels of a GPU with one call.

A step for a few dozen streams is many small launches, which take the host longer to ask for than
the GPU to do. Recorded once, they are replayed: in the same memory, so inputs are copied to where
the recorded step reads them, and outputs from where it writes them, each with a launch of its own.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from fastweights.agents.network import Network, NetworkOutput
from fastweights.kernels import without_waiting
from fastweights.kernels.recurrence import State, map_state

Replay = Callable[[], object]

_WARM_UPS = 3  # kernels are loaded, libraries choose theirs and allocate
_one_records = threading.Lock()


class CannotRecord(RuntimeError):
    """The step waits for the GPU, or copies to it from memory that is not pinned."""


def record(call: Callable[[], Any], device: torch.device) -> tuple[Any, Replay]:
    """What `call()` returns, in memory that each replay writes anew, and that replay.

    Waits for all that the GPU has to do, and has torch give its unused memory back; while the call
    is recorded, other threads may use the GPU.

    Raises:
        CannotRecord: torch's allocator may go on as if it were recording; better end the process.
    """
    with _one_records, torch.cuda.device(device), without_waiting():
        for _ in range(_WARM_UPS):
            call()
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
        # What is replayed keeps the priority that it was recorded with, whatever stream replays it.
        own = torch.cuda.Stream(device, priority=current.priority)
        try:
            # A recording that fails leaves its stream the current one.
            with (
                torch.cuda.stream(current),
                torch.cuda.graph(graph, stream=own, capture_error_mode="thread_local"),
            ):
                outputs = call()
        except RuntimeError as error:
            raise CannotRecord(
                f"the acting step cannot be a CUDA graph: {_first(error)}"
            ) from error
        return outputs, graph.replay


class GraphedStep:
    """A network's forward pass for acting, recorded at its first call by `record`.

    Weights are read where they are: optimisers and `load_state_dict` change them in place, and the
    next replay sees that.
    """

    def __init__(self, network: Network):
        self._network = network
        self._seen: tuple[Any, ...] = ()
        self._acted: Any = None
        self._replay: Replay | None = None

    @torch.no_grad()
    def __call__(self, *seen: Any) -> tuple[NetworkOutput, State]:
        """As `Network.forward`, with the same bits but for the LSTM, which is cuDNN's there.

        Raises:
            CannotRecord: see `record`.
            ValueError: another shape or dtype than that of the first call.
        """
        if self._replay is None:
            self._seen = map_state(torch.clone, seen)
            device = next(_tensors(seen)).device
            self._acted, self._replay = record(lambda: self._network(*self._seen), device)
        for place, given in zip(_tensors(self._seen), _tensors(seen), strict=True):
            if (place.shape, place.dtype) != (given.shape, given.dtype):
                was, now = (f"{x.dtype} of shape {tuple(x.shape)}" for x in (place, given))
                raise ValueError(f"the recorded step takes {was}, not {now}")
            place.copy_(given)
        self._replay()
        return map_state(torch.clone, self._acted)


def _tensors(nested: Any) -> Iterator[Tensor]:
    for part in nested:
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _tensors(part)


def _first(error: BaseException) -> str:
    """The first line of what went wrong before all that followed from it."""
    while error.__context__ is not None:
        error = error.__context__
    return next(iter(str(error).splitlines()), type(error).__name__)
