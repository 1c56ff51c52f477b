"""The memory of a server and its processes."""

from dataclasses import dataclass
from pathlib import Path

from support.triton_server import Server


@dataclass(frozen=True)
class ServerMemory:
    """Private memory and memory in /dev/shm, in bytes."""

    memory: int
    shared: int


def memory_of(server: Server) -> ServerMemory:
    """Return the memory that the server and its processes use now."""
    statuses = [Path(f"/proc/{pid}/status").read_text("ascii") for pid in server.processes()]
    lines = [line for status in statuses for line in status.splitlines()]
    memory = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    shared = sum(region.stat().st_blocks * 512 for region in server.shared_memory())
    return ServerMemory(memory, shared)
