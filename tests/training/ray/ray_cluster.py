"""A small Ray cluster for tests, on loopback, with a token and a temporary folder."""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ports import free_port

from fastweights.training.ray.guard import guard

HERE = Path(__file__).parent
# Ray reads these on import, so this process can join the clusters that it starts.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
os.environ.update(TOKEN)


class TestCluster:
    """A head node with some CPUs at 127.0.0.1; with `others`, nodes may join at 127.0.0.2 etc."""

    __test__ = False

    def __init__(self, num_cpus: int, others: bool = False):
        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self._guard = guard(self._folder)
        path = os.pathsep.join(map(str, (HERE, HERE.parents[2])))  # as if installed on every node
        self._common = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path}
        self._reach = dict.fromkeys(LOOPBACK, "1") if others else LOOPBACK
        self.address = f"127.0.0.{2 if others else 1}:{free_port()}"
        host, _, port = self.address.partition(":")
        head = ("--head", "--port", port, "--include-dashboard", "false")
        self._nodes = [self._start(num_cpus, host, *head, "--temp-dir", self._folder)]

    def __enter__(self):
        return self

    def add_node(self, num_cpus: int) -> subprocess.Popen:
        """Start another node at the next address."""
        host = f"127.0.0.{2 + len(self._nodes)}"
        self._nodes.append(self._start(num_cpus, host, "--address", self.address))
        return self._nodes[-1]

    def _start(self, num_cpus: int, host: str, *options: str) -> subprocess.Popen:
        log = Path(self._folder) / f"{host}.log"
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
        with log.open("wb") as out:
            node = subprocess.Popen(
                [*command, "--num-cpus", str(num_cpus), "--node-ip-address", host],
                stdout=out,
                stderr=out,
                env=os.environ | TOKEN | self._common | self._reach,
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while b"Ray runtime started" not in log.read_bytes():
            assert node.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        return node

    def __exit__(self, *error: object) -> None:
        self._guard.stdin.close()
        self._guard.wait()
        for node in self._nodes:
            node.wait()
