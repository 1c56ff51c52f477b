"""Starts a tritonserver on free loopback ports, waits until it is ready, and always stops it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from cluster import folders
from cluster.errors import ClusterError
from cluster.processes import DEADLINE_SECONDS, until
from specdec.triton import library
from specdec.triton.launch import CONNECTION_AGE, Tls, server_argv
from support.ports import reserved

ROOT = Path(__file__).parents[2]
PAYLOAD = ROOT / "operator" / "specdec" / "images"
_NATIVE = f'backend: "{library.BACKEND}"'


class ServerError(Exception):
    """The server failed; the message ends with the last lines of its log."""


def installed_server() -> Path:
    """Install `tritonserver` into the cache folder, as in the Reference image; return its path."""
    folder = folders.cache() / "tritonserver"
    install = [sys.executable, str(PAYLOAD / "backend" / "install.py")]
    wheels = folders.cache() / "wheels"
    arguments = ["--dest", str(folder), "--download-dir", str(wheels), "--python", sys.executable]
    subprocess.run([*install, *arguments], check=True, timeout=DEADLINE_SECONDS)
    return folder / "bin" / "tritonserver"


class Server:
    """One running server; a context manager.

    Args:
        executable: the installed tritonserver.
        repository: files of the model repository, path -> text.
        folder: an empty directory for repository and log.
        within: a command that runs the server, which it gets as its last arguments.
        tls: TLS of the gRPC endpoint.
        connection_age: seconds after which a gRPC client is asked to connect anew.
        health_only: the HTTP endpoint only reports health.
        probe_key: a key that permits inference over such an endpoint.
        env: further environment variables.

    Raises:
        ServerError: the server is not ready in time, or ends before; with the log's tail.
    """

    def __init__(
        self,
        executable: Path,
        repository: Mapping[str, str],
        folder: Path,
        within: Sequence[str] = (),
        tls: Tls | None = None,
        connection_age: int = CONNECTION_AGE,
        *,
        health_only: bool = False,
        probe_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._age, self._health_only = connection_age, health_only
        self._probe_key, self._env = probe_key, env or {}
        self._command = [*within, str(executable)]
        self._tls = tls
        self._prefix = f"triton_python_backend_shm_region_specdec_test_{uuid.uuid4().hex[:8]}_"
        self._log = folder / "server.log"
        # A killed model leaves its temporary files; pytest deletes those of old runs.
        self._temporary = folder / "temporary"
        self._temporary.mkdir(parents=True, exist_ok=True)
        self.repository = folder / "repository"
        self.repository.mkdir(exist_ok=True)
        for path, text in repository.items():
            file = self.repository / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            if file.name == "config.pbtxt" and _NATIVE in text:
                # The publish Job also copies the library.
                shutil.copyfile(library.folder() / library.FILE, file.with_name(library.FILE))
        self._reserved = contextlib.ExitStack()
        ports = self._reserved.enter_context(reserved(3))
        self.http_port, self.grpc_port, self.metrics_port = ports
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """`host:port` of the gRPC endpoint."""
        return f"127.0.0.1:{self.grpc_port}"

    def __enter__(self) -> Self:
        arguments = server_argv(
            str(self.repository),
            http_port=self.http_port,
            grpc_port=self.grpc_port,
            metrics_port=self.metrics_port,
            address="127.0.0.1",
            exit_timeout_seconds=DEADLINE_SECONDS,
            connection_age_seconds=self._age,
            shm_region_prefix=self._prefix,
            tls=self._tls,
            health_only=self._health_only,
            probe_key=self._probe_key,
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                # Linux gives each session an equal share of the processors. In the session of the
                # tests, a model may get none for a second, after which Triton may end the server.
                start_new_session=True,
                # One thread: the models are tiny, and tests share few cores.
                env={
                    **os.environ,
                    "OPENBLAS_NUM_THREADS": "1",
                    "TOKENIZERS_PARALLELISM": "false",
                    "TMPDIR": str(self._temporary),
                    **self._env,
                },
            )
        try:
            until(self._ready_or_dead, lambda: "the server is not ready")
            status = self._process.poll()
        except ClusterError as error:
            raise self._failure(str(error)) from None
        except BaseException:
            self.kill()
            raise
        if status is not None:
            raise self._failure(f"the server ended with {status}")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the server and its models: a normal stop takes three seconds to unload them."""
        for process in reversed(self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self._process is not None:
            # The models of a crashed server are no longer below it, but still in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> int:
        """Stop the server as Kubernetes does, delete its shared memory; return its exit status."""
        process = self._process
        if process is None:
            self._reserved.close()
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server did not end within {DEADLINE_SECONDS} s") from None
        self._process = None
        self._reserved.close()
        for region in self.shared_memory():
            region.unlink(missing_ok=True)
        return status

    def status(self) -> int | None:
        """Return the exit status of a server that ended by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    def log(self) -> str:
        """Return the log of the server so far; empty before its start."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def log_summary(self) -> str:
        """Return the first errors of the log, and its end."""
        log = self.log()
        # The log has a table of all settings between the errors of the start and its end.
        errors = [line for line in log.splitlines() if line.startswith("E")]
        return "\n".join([*errors[:20], log[-1000:]])

    def shared_memory(self) -> list[Path]:
        """Return this server's regions in /dev/shm."""
        return sorted(Path("/dev/shm").glob(f"{self._prefix}*"))

    def processes(self) -> list[int]:
        """Return the ids of the server and of all processes below it."""
        if self._process is None:
            return []
        processes = [self._process.pid]
        for parent in processes:
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    processes += [int(child) for child in task.read_text("ascii").split()]
        return processes

    def process_of(self, model: str) -> int:
        """Return the id of the process in which a Python model runs."""
        for process in self.processes():
            arguments = command_of(process).split(b"\0")
            if any(model.encode() in argument.split(b"/") for argument in arguments[1:]):
                return process
        raise ServerError(f"no process of {model}")

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its label sets; 0 without samples."""
        lines = [line for line in self.get_metrics().splitlines() if not line.startswith("#")]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name
        )

    def get_metrics(self) -> str:
        """Return the metrics page."""
        return _get(f"http://127.0.0.1:{self.metrics_port}/metrics")

    def _failure(self, message: str) -> ServerError:
        summary = self.log_summary()
        self.kill()
        return ServerError(f"{message}\n{summary}")

    def _ready_or_dead(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            _get(f"http://127.0.0.1:{self.http_port}/v2/health/ready")
            # Triton opens this port last, tens of milliseconds after it reports itself ready.
            socket.create_connection(
                ("127.0.0.1", self.metrics_port), timeout=DEADLINE_SECONDS
            ).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as reply:
        text: str = reply.read().decode()
        return text


def command_of(process: int) -> bytes:
    """Return a process's command, with a zero byte after each word; empty once it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
