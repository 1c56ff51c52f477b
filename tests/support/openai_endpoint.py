"""The OpenAI endpoint as a process on a free loopback port, as its container starts it."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from cluster.processes import DEADLINE_SECONDS, until
from support.ports import reserved

MODEL = "tiny"


class OpenAIEndpoint:
    """One running endpoint; a context manager.

    Args:
        grpc_url: `host:port` of the Triton server.
        tokenizer: directory with the tokenizer of the checkpoint.
        options: further arguments of the program.
        source: a folder with another version of the package; None for this one.
    """

    def __init__(
        self,
        grpc_url: str,
        tokenizer: Path,
        options: Sequence[str] = (),
        source: Path | None = None,
    ) -> None:
        self._reserved = ExitStack()
        (self.port,) = self._reserved.enter_context(reserved(1))
        self._command = [
            *(sys.executable, "-m", _module(source), "--served-model-name", MODEL),
            *("--url", grpc_url, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--tokenizer", str(tokenizer), *options),
        ]
        self._environment = {"PYTHONPATH": str(source)} if source else {}
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of_container(
        cls,
        command: Sequence[str],
        grpc_url: str,
        within: Sequence[str],
        files: Mapping[str, Path],
    ) -> Self:
        """Return an endpoint with the command of a generated container.

        Args:
            command: command of the container; ports are replaced, and this Python runs it.
            grpc_url: as for the class.
            within: a command that starts the endpoint with its view of the volume.
            files: by path in the command, the local file with the same content.
        """
        made = cls(grpc_url, Path())
        replaced = {"--url": grpc_url, "--port": str(made.port)}
        arguments = [sys.executable, *command[1:]]
        for index, name in enumerate(command[:-1]):
            if name in replaced:
                arguments[index + 1] = replaced[name]
        made._command = [*within, *(str(files.get(item, item)) for item in arguments)]
        return made

    @property
    def url(self) -> str:
        """Return the base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Return the running process."""
        if self._process is None:
            raise RuntimeError("the endpoint is not started")
        return self._process

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, env=os.environ | self._environment)
        try:
            until(self._ready_or_dead, lambda: "the OpenAI endpoint is not ready")
        except BaseException:
            self.stop()
            raise
        if (status := self._process.poll()) is not None:
            raise RuntimeError(f"the OpenAI endpoint ended with {status}")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the process as Kubernetes does."""
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reserved.close()

    def get(self, path: str) -> str:
        """Return the text of a page."""
        address = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as reply:
            text: str = reply.read().decode()
            return text

    def memory_bytes(self) -> int:
        """Return the resident memory of the process and of its child processes."""
        total, processes = 0, [self.process.pid]
        for pid in processes:
            status = Path(f"/proc/{pid}/status").read_text("ascii")
            total += int(status.split("VmRSS:")[1].split()[0]) * 1024
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                processes += [int(child) for child in task.read_text("ascii").split()]
        return total

    def _ready_or_dead(self) -> bool:
        if self.process.poll() is not None:
            return True
        try:
            return bool(self.get("/health/ready"))
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def _module(source: Path | None) -> str:
    """Return the name of the program in a source, which may be older than the package `images`."""
    earlier = source is not None and not (source / "specdec" / "images" / "openai").is_dir()
    return "specdec.openai" if earlier else "specdec.images.openai"
