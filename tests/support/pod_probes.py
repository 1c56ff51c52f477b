"""Probes of a server's container and requests to it, where the containers are processes."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.processes import DEADLINE_SECONDS
from support.programs import local


def probe(command: Sequence[str], port: int, state: Path) -> str:
    """Run a probe once; return its message, empty on success.

    Args:
        command: of the container; its last argument is the plan as JSON.
        port: of the server on this machine.
        state: the file with the record of the probes.
    """
    *program, plan = command
    done = subprocess.run(
        local([*program, json.dumps({**json.loads(plan), "port": port})]),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "SPECDEC_HEALTH": str(state)},
    )
    assert bool(done.returncode) == bool(done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


def age(state: Path, seconds: float) -> None:
    """Move the times in the probes' record into the past."""
    record = json.loads(state.read_bytes())
    for name in ("at", "asked"):
        record[name] -= seconds
    state.write_text(json.dumps(record), "utf-8")


def status(
    url: str, method: str = "GET", failed: Callable[[OSError], None] = lambda _: None
) -> int:
    """Return the HTTP status of a request without a body; 0 if the connection failed."""
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError) as error:
        failed(error)
        return 0
