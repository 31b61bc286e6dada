"""Ray for one run: started on this machine for it alone, or a cluster that it joins.

A Ray of our own listens on loopback only, with a token that nobody else knows, no dashboard and no
usage reports, keeps its files in a folder of its own under /tmp, and is gone when the run is
(`training/ray/guard.py`). A cluster's Ray is its owner's; docs/clusters.md says how to start one.
"""

import atexit
import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fastweights
from fastweights.training.ray.guard import guard

CONNECT_SECONDS = 10.0  # for a cluster to answer
_CLOSE_SECONDS = 15.0
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # What an actor still owed when it was replaced: the reason has been said, in one line.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # The actors say themselves which device they use.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Ray replaces 127.0.0.1 by the machine's own address, and listens on all of them, unless it may not
# build clusters; the name is Ray's, which forbids them where firewalls ask about every port.
_ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # read once a process
}


class Session:
    """A connection to Ray, and Ray itself where it is ours; `close` ends both."""

    def __init__(self, address: str | None = None, cpus: float = 1.0) -> None:
        """Joins the cluster at `address`; None: starts Ray here, with `cpus` to give to actors.

        `auto` is Ray's word for RAY_ADDRESS, or else for what `ray start` began on this machine.

        Raises `ValueError`, one line, where Ray is not installed or the cluster does not answer.
        """
        if find_spec("ray") is None:
            raise ValueError("--engine ray needs Ray: pip install -e '.[ray]'")
        self._guard: subprocess.Popen[bytes] | None = None
        self.folder: str | None = None
        if address is None:
            # In /tmp whatever TMPDIR says: a socket's path must be short.
            self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
            self._guard = guard(self.folder)
            self._environment = _ENVIRONMENT | _ALONE | _own_code()
        else:
            if address == "auto":
                address = os.environ.get("RAY_ADDRESS", address)
            _check_address(address)
            self._environment = dict(_ENVIRONMENT)
        self._before = {name: os.environ.get(name) for name in self._environment}
        _set_environment(self._environment)
        atexit.register(self.close)
        self._init(address, cpus)

    def _init(self, address: str | None, cpus: float) -> None:
        import ray

        ray.shutdown()  # what a run that failed before it began has left in this process
        before = signal.getsignal(signal.SIGTERM)
        # Inherited by what is started here: a batch system that ends a job tells every process of
        # it, and a driver whose Ray is gone is gone at once, without saving.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            if address is None:
                ray.init(
                    "local",
                    num_cpus=max(1, int(-(-cpus // 1))),
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=self.folder,
                    **_QUIET,
                )
                # Whoever imported Ray before us has decided where it listens.
                assert ray.util.get_node_ip_address() == "127.0.0.1"
            else:
                ray.init(address, **_QUIET)
        except Exception as error:  # Ray raises just that, and others
            self.close()
            where = "start Ray here" if address is None else f"join the Ray cluster at {address}"
            raise ValueError(f"cannot {where}: {' '.join(str(error).split())[:300]}") from error
        except BaseException:
            self.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            signal.signal(signal.SIGTERM, before)  # Ray has put its own in its place

    def cpus(self) -> int:
        """CPUs that all nodes have now."""
        import ray

        return int(ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Ends every process of the session; a second call does nothing."""
        if self._before is None:
            return
        before, self._before = self._before, None
        atexit.unregister(self.close)
        import ray

        with contextlib.suppress(Exception):  # of a Ray that is half gone; the guard takes the rest
            ray.shutdown()
        if self._guard is not None:
            self._guard.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(_CLOSE_SECONDS)
        _set_environment(before)


def _own_code() -> dict[str, str]:
    """Has actors import the code that runs here, whichever is installed."""
    found = (str(Path(fastweights.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH"))
    return {"PYTHONPATH": os.pathsep.join(filter(None, found))}


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _check_address(address: str) -> None:
    """Ray would wait for a minute, or end the process, where nobody answers."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "/" in address or not (host and colon and port.isdigit() and 0 < int(port) < 2**16):
        raise ValueError(f"--ray-address takes auto or host:port, not {address!r}")
    try:
        reason = _who_answers(host.strip("[]"), int(port))
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise ValueError(
            f"--ray-address {address}: no Ray answers there ({reason}); start a cluster as "
            "docs/clusters.md says, or leave the address out for a Ray of this run's own"
        )


def _who_answers(host: str, port: int) -> str | None:
    """What is wrong with who listens there; None: it speaks HTTP/2, as Ray does. Raises `OSError`.

    RFC 9113, section 3.4: a client begins with these words and an empty frame of settings, which is
    type 4, and the server with its own settings.
    """
    with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return None
        connection.settimeout(CONNECT_SECONDS)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        answer = connection.recv(9, socket.MSG_WAITALL)
    return None if answer[3:4] == b"\4" else "another service listens"
