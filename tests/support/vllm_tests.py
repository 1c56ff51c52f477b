"""What tests on a real vLLM share: the marker `vllm`, and the lock that keeps engines apart."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import folders
from support import vllm_wheel
from support.vllm_wheel import DEFAULT, Installation


def installed(version: str = DEFAULT) -> Installation:
    """Return the installation that the marker `vllm` of this test requires."""
    installation = vllm_wheel.available(version)
    assert installation, "the test lacks the marker `vllm`"
    return installation


def require(gibibytes: float, version: str = DEFAULT) -> None:
    """Skip a test where its version or free memory is missing."""
    if vllm_wheel.available(version) is None:
        pytest.skip(f"vLLM {version} is not installed; run `make vllm VLLM={version}`")
    if free() < gibibytes:
        pytest.skip(f"the test needs {gibibytes} GiB of memory, and {free():.1f} GiB are free")


def free() -> float:
    """Return the memory of this machine that new processes can use, in GiB."""
    text = Path("/proc/meminfo").read_text("ascii")
    available = re.search(r"^MemAvailable: +(\d+) kB$", text, re.MULTILINE)
    assert available, text
    return int(available[1]) / 2**20


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other test on this machine has an engine of vLLM, and hold the others off."""
    with folders.locked(folders.cache() / "vllm" / "engine.lock"):
        yield
