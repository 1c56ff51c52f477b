"""The probes of a server that has one model and an HTTP API of its own, such as `trtllm-serve`.

    health.py startup PLAN      asks for a token until one arrives or the time is over
    health.py readiness PLAN    asks for a token if no request has ended lately
    health.py liveness PLAN     asks for none

PLAN is JSON with `port` (on localhost), `health` (the path of the server's own report), `path` and
`request` (a POST for one token), `output` (the field of the answer that shows it), `page` (the
path of the metrics), `counters` (how the lines of work that has ended begin), `without` (parts of
lines that are no proof), `seconds` (of a startup attempt) and `patience` (seconds).

After the loss of a rank, the server's own report can still succeed. So an idle server is asked for
a token every `_QUIET` seconds. It has failed if it refuses one, and stays failed until it gives
one. A token that does not arrive may wait behind requests: the server has failed if that lasts for
`patience`. The liveness probe fails with the server's own report, or if the server has failed and
its last proof is older than `patience`.

Exits 1 with a message, which becomes an event of the pod.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

STATE = Path(os.environ.get("SPECDEC_HEALTH", "/tmp/specdec-health"))  # noqa: S108
_QUIET = 15.0
_POLL = 0.25
# No request is sent with less time left than this.
_LEAST = 1.0
# Timeouts of a readiness check, and of a request that asks for no token.
_CHECK, _REPLY = 8.0, 3.0
_JSON = {"Content-Type": "application/json"}


class Plan(NamedTuple):
    """The server that is probed; see the module."""

    port: int
    health: str
    path: str
    request: Mapping[str, Any]
    output: str
    page: str
    seconds: float
    patience: float
    counters: Sequence[str] = ()
    without: Sequence[str] = ()


# Not a dataclass: that module takes a fifth of the time of a probe.
class Record:
    """What is known of the server.

    Args:
        at: when it last gave proof that it generates, on the monotonic clock.
        asked: when it was last asked for a token, or gave proof.
        done: its counters at the time `at`.
        failed: whether it has failed since then.
    """

    def __init__(
        self, at: float, asked: float, done: Sequence[str] = (), *, failed: bool = False
    ) -> None:
        self.at = at
        self.asked = asked
        self.done = list(done)
        self.failed = failed


def startup(
    plan: Plan,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The problem of the last attempt; empty as soon as a token arrives.

    There is at least one attempt, however late the process starts: without one, a slow machine
    would report a server that gave no token as started.
    """
    deadline = clock() + plan.seconds
    left = plan.seconds
    while problem := ask(plan, left)[0]:
        sleep(_POLL)
        left = deadline - clock()
        if left < min(_LEAST, plan.seconds / 2):
            return problem
    _prove(done(plan))
    return ""


def readiness(plan: Plan) -> str:
    """The problem of a server that has started; empty if there is none."""
    deadline = time.monotonic() + _CHECK
    problem, _, _ = get(plan.port, plan.health, _REPLY)
    if problem:
        return problem
    ended, now = done(plan), time.monotonic()
    record = load() or Record(now, now - _QUIET, ended)
    # A page that cannot be read is no proof.
    if ended and ended != record.done:
        _prove(ended)
        return ""
    left = deadline - now
    if (not record.failed and now - record.asked < _QUIET) or left < _LEAST:
        return ""
    problem, refused = ask(plan, left)
    if not problem:
        _prove(done(plan))
        return ""
    record.failed |= refused or now - record.at > plan.patience
    record.asked = now
    save(record)
    return problem if record.failed else ""


def liveness(plan: Plan) -> str:
    """The problem that only a restart solves; empty if there is none."""
    problem, _, _ = get(plan.port, plan.health, _REPLY)
    record = load()
    if problem or record is None or not record.failed:
        return problem
    if time.monotonic() - record.at <= plan.patience:
        return ""
    return f"no token for more than {plan.patience:g} s"


def ask(plan: Plan, seconds: float) -> tuple[str, bool]:
    """Ask for one token.

    Returns:
        why the server gave none, or the empty string, and whether it answered without a token.
    """
    problem, answered, text = get(plan.port, plan.path, seconds, json.dumps(plan.request))
    if problem:
        return problem, answered
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if isinstance(answer, Mapping) and answer.get(plan.output) not in (None, "", []):
        return "", False
    return f"{plan.path} answered without {plan.output}", True


def get(port: int, path: str, seconds: float, body: str | None = None) -> tuple[str, bool, str]:
    """Request a path; a body makes the request a POST.

    Returns:
        the problem, or the empty string, whether the server answered with an error, and the text
        of the answer.
    """
    # Not urllib: it would send the request to a proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("POST" if body else "GET", path, body, _JSON if body else {})
        reply = connection.getresponse()
        status, text = reply.status, reply.read().decode("utf-8", "replace")
    except TimeoutError:
        return f"{path} did not answer within {seconds:.0f} s", False, ""
    except (OSError, http.client.HTTPException) as error:
        return f"{path} did not answer ({type(error).__name__})", False, ""
    finally:
        connection.close()
    if status == http.client.OK:
        return "", False, text
    return f"{path} answered {status}", True, ""


def done(plan: Plan) -> list[str]:
    """The counters of ended requests; empty if the release exports none."""
    _, _, page = get(plan.port, plan.page, _REPLY)
    lines = (line for line in page.splitlines() if line.startswith(tuple(plan.counters)))
    return [line for line in lines if not any(part in line for part in plan.without)]


def load() -> Record | None:
    """The record of the last probe; None without one."""
    try:
        return Record(**json.loads(STATE.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def save(record: Record) -> None:
    """Write the record for the next probe."""
    part = STATE.with_name(f"{STATE.name}.part")
    part.write_text(json.dumps(vars(record)))
    part.replace(STATE)


def _prove(ended: list[str]) -> None:
    now = time.monotonic()
    save(Record(now, now, ended))


_PROBES: Mapping[str, Callable[..., str]] = {
    "startup": startup,
    "readiness": readiness,
    "liveness": liveness,
}


def main(probe: str, text: str) -> str:
    """Run a probe on a plan in JSON."""
    return _PROBES[probe](Plan(**json.loads(text)))


if __name__ == "__main__":
    if wrong := main(*sys.argv[1:]):
        sys.exit(wrong)
