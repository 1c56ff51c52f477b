"""The probes of `trtllm-serve`, which listens on localhost.

    health.py startup PORT SECONDS MODEL     asks for a token until one arrives or the time is over
    health.py readiness PORT PATIENCE MODEL  asks for a token if no request has ended lately
    health.py liveness PORT PATIENCE         asks for none

It asks `/v1/completions`: the server's own `/health_generate` sends a chat, which fails for ever
without a chat template. MODEL is the model's name in requests.

After the loss of a rank, `/health` of newer releases fails for ever, and that of older ones still
succeeds. So an idle server is asked for a token every `_QUIET` seconds. It has failed if it
refuses one, and stays failed until it gives one. A token that does not arrive may wait behind
requests: the server has failed if that lasts for PATIENCE seconds. The liveness probe fails with
`/health`, or if the server has failed and its last proof is older than PATIENCE.

Exits 1 with a message, which becomes an event of the pod.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STATE = Path(os.environ.get("SPECDEC_HEALTH", "/tmp/specdec-health"))  # noqa: S108
HEALTH, GENERATE, PAGE = "/health", "/v1/completions", "/prometheus/metrics"
_QUIET = 15.0
_POLL = 0.25
# No request is sent with less time left than this.
_LEAST = 1.0
# Timeouts of a readiness check, and of a request that asks for no token.
_CHECK, _REPLY = 8.0, 3.0
# Counters of work that has ended; a request whose client left is no proof.
_DONE = ("trtllm_request_success_total", "trtllm_generation_tokens_total")
_NO_PROOF = ("cancelled", "timeout")
_JSON = {"Content-Type": "application/json"}


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
    port: int,
    seconds: float,
    model: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The problem of the last attempt; empty as soon as a token arrives.

    There is at least one attempt, however late the process starts: without one, a slow machine
    would report a server that gave no token as started.
    """
    deadline = clock() + seconds
    left = seconds
    while problem := ask(port, model, left)[0]:
        sleep(_POLL)
        left = deadline - clock()
        if left < min(_LEAST, seconds / 2):
            return problem
    _prove(done(port, _REPLY))
    return ""


def readiness(port: int, patience: float, model: str) -> str:
    """The problem of a server that has started; empty if there is none."""
    deadline = time.monotonic() + _CHECK
    problem, _ = get(port, HEALTH, _REPLY)
    if problem:
        return problem
    ended, now = done(port, _REPLY), time.monotonic()
    record = load() or Record(now, now - _QUIET, ended)
    # A page that cannot be read is no proof.
    if ended and ended != record.done:
        _prove(ended)
        return ""
    left = deadline - now
    if (not record.failed and now - record.asked < _QUIET) or left < _LEAST:
        return ""
    problem, refused = ask(port, model, left)
    if not problem:
        _prove(done(port, _REPLY))
        return ""
    record.failed |= refused or now - record.at > patience
    record.asked = now
    save(record)
    return problem if record.failed else ""


def liveness(port: int, patience: float) -> str:
    """The problem that only a restart solves; empty if there is none."""
    problem, _ = get(port, HEALTH, _REPLY)
    record = load()
    if problem or record is None or not record.failed:
        return problem
    if time.monotonic() - record.at <= patience:
        return ""
    return f"no token for more than {patience:g} s"


def ask(port: int, model: str, seconds: float) -> tuple[str, bool]:
    """Ask for one token; returns what `get` returns."""
    body = {"model": model, "prompt": "hi", "max_tokens": 1, "temperature": 0}
    return get(port, GENERATE, seconds, json.dumps(body))


def get(port: int, path: str, seconds: float, body: str | None = None) -> tuple[str, bool]:
    """Request a path; a body makes the request a POST.

    Returns:
        the problem, or the empty string, and whether the server answered with an error.
    """
    # Not urllib: it would send the request to a proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("POST" if body else "GET", path, body, _JSON if body else {})
        status = connection.getresponse().status
    except TimeoutError:
        return f"{path} did not answer within {seconds:.0f} s", False
    except (OSError, http.client.HTTPException) as error:
        return f"{path} did not answer ({type(error).__name__})", False
    finally:
        connection.close()
    return ("", False) if status == http.client.OK else (f"{path} answered {status}", True)


def done(port: int, seconds: float) -> list[str]:
    """The counters of ended requests; empty if the release exports none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET", PAGE)
        page = connection.getresponse().read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return []
    finally:
        connection.close()
    lines = (line for line in page.splitlines() if line.startswith(_DONE))
    return [line for line in lines if not any(reason in line for reason in _NO_PROOF)]


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


if __name__ == "__main__":
    if wrong := _PROBES[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]):
        sys.exit(wrong)
