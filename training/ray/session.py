"""Ray for one run: started on this machine for this run only, or an existing cluster.

A run's own Ray listens on loopback only, with a secret token, no dashboard and no usage reports.
Its files are in a separate folder under /tmp, and it ends with the run (`training/ray/guard.py`). A
cluster's Ray is managed by its owner; docs/clusters.md shows how to start one.
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
from fastweights.host import install_command, one_line
from fastweights.training.ray.guard import guard

CONNECT_SECONDS = 10.0  # time limit for a cluster to answer
_CLOSE_SECONDS = 15.0
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Errors of requests to a replaced actor: the reason has already been printed.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # The actors choose their devices themselves.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Unless clusters are disabled, Ray replaces 127.0.0.1 with the machine's own address and listens on
# all addresses. Ray named the variable after systems whose firewalls ask about every port.
_ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # read once per process
}


class Session:
    """A connection to Ray, and Ray itself if the run started it; `close` ends both."""

    def __init__(self, address: str | None = None, cpus: float = 1.0) -> None:
        """Join the cluster at `address`; None: start Ray here, with `cpus` for actors.

        `auto` means RAY_ADDRESS, or a Ray that `ray start` started on this machine.

        Raises:
            ValueError: Ray is not installed, or the cluster does not answer; one line.
        """
        if find_spec("ray") is None:
            raise ValueError(f"--engine ray needs Ray: {install_command('ray')}")
        self._guard: subprocess.Popen[bytes] | None = None
        self.folder: str | None = None
        if address is None:
            # Always in /tmp: a socket's path must be short.
            self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
            self._guard = guard(self.folder)
            environment = _ENVIRONMENT | _ALONE | _own_code()
        else:
            if address == "auto":
                address = os.environ.get("RAY_ADDRESS", address)
            _check_address(address)
            environment = _ENVIRONMENT
        self._before = {name: os.environ.get(name) for name in environment}
        _set_environment(environment)
        atexit.register(self.close)
        self._init(address, cpus)

    def _init(self, address: str | None, cpus: float) -> None:
        import ray

        ray.shutdown()  # left by a run in this process that failed before it began
        before = signal.getsignal(signal.SIGTERM)
        # Ray's processes inherit this. A batch system signals every process of a job, and a driver
        # whose Ray has ended dies immediately, without saving. Joining a cluster starts none.
        blocked = {signal.SIGTERM} if address is None else set()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            if address is None:
                ray.init(
                    "local",
                    num_cpus=max(1, int(-(-cpus // 1))),
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=f"{self.folder}/r",  # Ray lets everybody write to it
                    **_QUIET,
                )
                # An earlier import of Ray may have set another address.
                assert ray.util.get_node_ip_address() == "127.0.0.1"
            else:
                ray.init(address, **_QUIET)
        except Exception as error:  # Ray raises plain Exception, among others
            self.close()
            where = "start Ray here" if address is None else f"join the Ray cluster at {address}"
            raise ValueError(f"cannot {where}: {one_line(str(error))[:300]}") from error
        except BaseException:
            self.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            signal.signal(signal.SIGTERM, before)  # Ray replaces the handler

    def cpus(self) -> int:
        """Return the number of CPUs of all present nodes."""
        import ray

        return int(ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """End every process of the session; a second call does nothing."""
        if self._before is None:
            return
        before, self._before = self._before, None
        atexit.unregister(self.close)
        import ray

        with contextlib.suppress(Exception):  # Ray may have half ended; the guard does the rest
            ray.shutdown()
        if self._guard is not None:
            self._guard.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(_CLOSE_SECONDS)
        _set_environment(before)


def _own_code() -> dict[str, str]:
    """Return settings that make actors import the code that runs here."""
    found = (str(Path(fastweights.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH"))
    return {"PYTHONPATH": os.pathsep.join(filter(None, found))}


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _check_address(address: str) -> None:
    """Raise if no Ray answers; Ray itself would wait for a minute, or end the process."""
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
            "docs/clusters.md says, or leave --ray-address out to start a Ray for this run"
        )


def _who_answers(host: str, port: int) -> str | None:
    """Return what is wrong with the server there; None if it speaks HTTP/2, as Ray does.

    RFC 9113, section 3.4: a client begins with this preface and an empty settings frame (type 4);
    the server answers with its own settings. Raises `OSError`.
    """
    with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return None
        connection.settimeout(CONNECT_SECONDS)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        answer = connection.recv(9, socket.MSG_WAITALL)
    return None if answer[3:4] == b"\4" else "another service listens"
