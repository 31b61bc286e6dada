"""The acting step as a CUDA graph: a single host call launches a hundred kernels on a GPU.

A step for a few dozen streams consists of many small launches, which take the host longer to issue
than the GPU to run. They are recorded once and replayed. A replay uses the same memory, so inputs
are copied to the memory that the recorded step reads, and outputs from the memory that it writes,
each with a separate launch.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch

from fastweights.agents.network import Network, NetworkOutput
from fastweights.host import UserError
from fastweights.kernels import State, map_state, tensors_of, without_waiting

Replay = Callable[[], object]

_WARM_UPS = 3  # runs in which kernels are loaded and libraries choose kernels and allocate
_one_records = threading.Lock()


class CannotRecord(UserError):
    """The step waits for the GPU, or copies to it from memory that is not pinned; one line."""


def record(call: Callable[[], Any], device: torch.device) -> tuple[Any, Replay]:
    """Return the result of `call()`, in memory that each replay overwrites, and the replay.

    Waits until the GPU is idle, and makes torch release unused memory. Other threads may use the
    GPU while the call is recorded.

    Raises:
        CannotRecord: torch's allocator may still be in recording mode; end the process.
    """
    with _one_records, torch.cuda.device(device), without_waiting():
        for _ in range(_WARM_UPS):
            call()
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
        # Replayed kernels keep the priority of the recording in any stream.
        own = torch.cuda.Stream(device, priority=current.priority)
        try:
            # A failed recording leaves its stream as the current one.
            with (
                torch.cuda.stream(current),
                torch.cuda.graph(graph, stream=own, capture_error_mode="thread_local"),
            ):
                outputs = call()
        except RuntimeError as error:
            raise CannotRecord(
                f"the acting step cannot be recorded as a CUDA graph ({_first(error)}): "
                "leave --cuda-graphs out"
            ) from error
        return outputs, graph.replay


class GraphedStep:
    """A network's forward pass for acting, recorded at its first call by `record`.

    Weights are read in place. Optimisers and `load_state_dict` change them in place, so the next
    replay uses the new values.
    """

    def __init__(self, network: Network):
        self._network = network
        self._seen: tuple[Any, ...] = ()
        self._acted: Any = None
        self._replay: Replay | None = None

    @torch.no_grad()
    def __call__(self, *seen: Any) -> tuple[NetworkOutput, State]:
        """Return what `Network.forward` returns, bit-identical.

        Raises:
            CannotRecord: see `record`.
            ValueError: another shape or dtype than in the first call.
        """
        if self._replay is None:
            self._seen = map_state(torch.clone, seen)
            device = tensors_of(seen)[0].device
            self._acted, self._replay = record(lambda: self._network(*self._seen), device)
        for place, given in zip(tensors_of(self._seen), tensors_of(seen), strict=True):
            if (place.shape, place.dtype) != (given.shape, given.dtype):
                was, now = (f"{x.dtype} of shape {tuple(x.shape)}" for x in (place, given))
                raise ValueError(f"the recorded step expects {was}, not {now}")
            place.copy_(given)
        self._replay()
        return map_state(torch.clone, self._acted)


def _first(error: BaseException) -> str:
    """Return the first line of the error that caused all others."""
    while error.__context__ is not None:
        error = error.__context__
    return next(iter(str(error).splitlines()), type(error).__name__)
