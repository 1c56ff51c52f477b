"""kubectl for the demo and the end-to-end tests: takes arguments and returns plain values."""

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cluster.errors import ClusterError
from cluster.processes import DEADLINE_SECONDS, until
from demo.errors import DemoError
from demo.tools import end, lines_of

# Seconds after which a watch without events checks whether it is over.
_TURN = 0.5
# Longer than the limit that commands give kubectl itself, so that its own message is shown.
_SECONDS = DEADLINE_SECONDS + 10


@dataclass(frozen=True)
class Kubectl:
    """A kubectl for one cluster; `environment` holds its KUBECONFIG."""

    program: str
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """Run one command and return its standard output.

        Raises:
            DemoError: the command failed; the error contains kubectl's message.
        """
        try:
            done = subprocess.run(
                [self.program, *arguments],
                env={**os.environ, **self.environment},
                input=given,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DemoError(
                f"kubectl {' '.join(arguments)} did not end within {_SECONDS} s"
            ) from error
        except OSError as error:
            raise DemoError(f"{self.program} does not run ({error.strerror})") from error
        if done.returncode != 0:
            raise DemoError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any] | None:
        """Return an object or a list as JSON; None if it does not exist."""
        text = self("get", *arguments, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else None

    def spawn(self, *arguments: str, errors: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        """Start a command that keeps running, with its output as a pipe."""
        return subprocess.Popen(
            [self.program, *arguments],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    @contextmanager
    def forward(
        self, target: str, *ports: int, seconds: float = DEADLINE_SECONDS
    ) -> Iterator[dict[int, int]]:
        """Forward free local ports to `target`; yield the local port of each remote port.

        Raises:
            DemoError: the forwarding failed.
        """
        process = self.spawn("port-forward", target, *(f":{port}" for port in ports))
        try:
            yield _forwarded(process, ports, seconds)
        finally:
            end(process)

    def watch(
        self, *arguments: str, seconds: float, over: threading.Event | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield objects now and after each change, until `seconds` have passed or `over` is set.

        A server may end a watch at any time. This method then opens a new watch.
        """
        over = over or threading.Event()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not over.is_set():
            command = ("get", *arguments, "-o", "json", "--watch")
            process = self.spawn(*command, errors=subprocess.DEVNULL)
            try:
                yield from _documents(process, deadline, over)
            finally:
                end(process)
            # Without this pause, a stopped API server would get hundreds of requests.
            over.wait(0.5)


def wait(
    true: Callable[[], bool],
    what: Callable[[], str],
    seconds: float = DEADLINE_SECONDS,
    step: float = 0.2,
) -> None:
    """Poll until `true()` holds.

    Raises:
        DemoError: it did not hold within `seconds`; `what()` is the message.
    """
    try:
        until(true, what, seconds, step)
    except ClusterError as error:
        raise DemoError(str(error)) from None


def _documents(
    process: subprocess.Popen[str], deadline: float, over: threading.Event
) -> Iterator[dict[str, Any]]:
    decoder, text, lines = json.JSONDecoder(), "", lines_of(process)
    while not over.is_set() and (left := deadline - time.monotonic()) > 0:
        try:
            # Wait in short turns: without events, only the timeout ends this wait.
            line = lines.get(timeout=min(left, _TURN))
        except queue.Empty:
            continue
        if line is None:
            return
        text += line
        # kubectl writes indented documents: each document ends with an unindented brace.
        if line.startswith("}"):
            document, length = decoder.raw_decode(text.lstrip())
            text = text.lstrip()[length:]
            yield document


def _forwarded(
    process: subprocess.Popen[str], ports: tuple[int, ...], seconds: float
) -> dict[int, int]:
    deadline, output, forwarded = time.monotonic() + seconds, "", dict[int, int]()
    lines = lines_of(process)
    while len(forwarded) < len(ports):
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            raise DemoError(f"kubectl port-forward failed: {output.strip() or 'no output'}")
        output += line
        # "Forwarding from 127.0.0.1:40123 -> 8001"
        if line.startswith("Forwarding from 127.0.0.1:"):
            local, _, remote = line.removeprefix("Forwarding from 127.0.0.1:").partition(" -> ")
            forwarded[int(remote)] = int(local)
    return forwarded
