"""The processes that Ray runs, found in /proc."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path


def actors(ancestor: int) -> list[int]:
    """Return the actors' processes below a process."""
    found = []
    for pid in _processes():
        with contextlib.suppress(OSError):
            name = (Path("/proc") / str(pid) / "cmdline").read_bytes()
            if name.startswith(b"ray::RemoteActor") and ancestor in ancestors(pid):
                found.append(pid)
    return sorted(found)


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        stat = (Path("/proc") / str(pid) / "stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def below(process: int) -> list[int]:
    """Return all processes below a process."""
    found = []
    for pid in _processes():
        with contextlib.suppress(OSError):
            if process in ancestors(pid):
                found.append(pid)
    return found


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        stat = (Path("/proc") / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def folder_of(driver: int) -> Path:
    """Return the folder in which the Ray that a run has started keeps its files."""
    for link in (Path("/proc") / str(driver) / "fd").iterdir():
        with contextlib.suppress(OSError):
            target = link.readlink()
            if str(target).startswith("/tmp/ray-"):
                return Path(*target.parts[:3])
    raise AssertionError("no Ray of its own")


def listening_addresses(pids: list[int]) -> set[str]:
    """Return the addresses at which processes listen for TCP connections."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in (Path("/proc") / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(link.readlink()))
    found = set()
    for name, family, form in (("tcp", socket.AF_INET, "I"), ("tcp6", socket.AF_INET6, "IIII")):
        for line in (Path("/proc/net") / name).read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in sockets:
                words = bytes.fromhex(cells[1].partition(":")[0])
                packed = struct.pack(f"<{form}", *struct.unpack(f">{form}", words))
                found.add(socket.inet_ntop(family, packed).removeprefix("::ffff:"))
    return found


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]
