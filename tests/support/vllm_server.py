"""Runs vLLM's own OpenAI server on a free port of loopback, 1.6 GB of memory for the pair."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from cluster.errors import ClusterError
from cluster.processes import DEADLINE_SECONDS, until
from support.ports import reserved
from support.shipped_pair import PAIR
from support.vllm_tests import alone
from support.vllm_wheel import Installation

MODULE = "vllm.entrypoints.openai.api_server"
# The shipped target with a cache of 64 MiB and without compilation.
SMALL = (
    *("--model", str(PAIR / "target"), "--dtype", "float32", "--enforce-eager"),
    *("--kv-cache-memory-bytes", str(1 << 26)),
)


class VllmServer:
    """A running server of vLLM; a context manager. Only one runs on this machine at a time.

    Args:
        installation: the version.
        arguments: the command line, without host and port; the shipped target by default.
        folder: an empty folder for the log and vLLM's caches.
        environment: further variables.

    Raises:
        AssertionError: the server is not ready in time, or ends before; with the log's end.
    """

    def __init__(
        self,
        installation: Installation,
        folder: Path,
        arguments: Sequence[str] = SMALL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._arguments = [str(installation.python), "-m", MODULE, *arguments]
        self._folder = folder
        self._environment = {
            **os.environ,
            **installation.environment(folder / "caches"),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._resources = contextlib.ExitStack()
        self.port = 0

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process of the API; the engine is a child of it."""
        assert self._process
        return self._process.pid

    def engine(self) -> int:
        """Return the process of the engine, a child of that of the API."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii").split()
        (engine,) = [
            pid for pid in children if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return int(engine)

    def log(self) -> str:
        """Return what the server wrote."""
        return (self._folder / "server.log").read_text("utf-8", errors="replace")

    def status(self) -> int | None:
        """Return the exit status, or None while the server runs."""
        return None if self._process is None else self._process.poll()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as resources:
            resources.enter_context(alone())
            (self.port,) = resources.enter_context(reserved(1))
            resources.callback(self.kill)
            with (self._folder / "server.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [*self._arguments, "--host", "127.0.0.1", "--port", str(self.port)],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    cwd=self._folder,
                    env=self._environment,
                    start_new_session=True,
                )
            try:
                until(self._ready_or_dead, lambda: "the server is not ready", DEADLINE_SECONDS)
            except ClusterError as error:
                raise AssertionError(f"{error}: {self.log()[-3000:]}") from None
            status = self._process.poll()
            assert status is None, f"the server ended with {status}: {self.log()[-3000:]}"
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def kill(self) -> None:
        """Kill the server and its engine."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _ready_or_dead(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            return True
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False
