"""The startup and the readiness probe of a server: its engines give tokens.

Triton reports the state of its models, and not whether they generate. Behind a pre-spawned
orchestrator they are ready before any engine is loaded, and stay ready if a rank fails.

    engines.py startup PLAN      asks each engine for a token, until an attempt's time is over
    engines.py readiness PLAN    asks only engines that have not shown progress lately

A busy engine shows progress in its metrics, so it gets no request of a probe. An idle one gets a
request for one token every `_QUIET` seconds. An engine that has work and shows no progress may
still be in a long step, or have only long answers in flight: it fails after the plan's `patience`.
An engine that reports no work and still gives no token fails at once. It stays failed until it
shows progress.

The server must also answer a gRPC stream (`streams.py`), which can fail on its own.

One failure of readiness takes the pod out of its Service. The death of a process fails at once:
the server refuses requests until it restarts. Any other problem may pass, so it fails at the third
run in a row.

PLAN is JSON with `http` and `metrics` (ports), `engines` (Triton models), `seconds` (of a startup
attempt) and `patience` (seconds). It has the `request` for one token and the `output` that shows
it; `counters` replaces those of `_COUNTERS`, and `work` those of `_WORK`. Unless streams need a
certificate, it has their port `grpc`, and `encrypted` with TLS. For a server with several ranks it
has `ranks` (of this container) and `mark` (the start of an argument that the process of each rank
has).
Exits 1 with a message, which becomes an event of the pod.
"""

import http.client
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

STATE = Path(os.environ.get("SPECDEC_ENGINES", "/tmp/specdec-engines"))  # noqa: S108
KEY = Path(os.environ.get("SPECDEC_PROBE_KEY", "/tmp/specdec-probe-key"))  # noqa: S108
HEADER = "specdec-probe"
# Above the ten seconds for which a drain waits for an engine that may be between two steps.
_QUIET = 15.0
# Timeouts of a request for a token, a readiness check, a request to the server itself, a stream.
_ANSWER, _CHECK, _REPLY, _STREAM = 5.0, 8.0, 4.0, 4.0
# Runs in a row at which a problem that may pass is reported.
_RUNS = 3
# No request for a token is sent with less time left than this.
_LEAST = 1.0
_POLL = 0.25
# Name and label of counters that grow only while an engine of TensorRT-LLM works.
_COUNTERS = (
    ("nv_trt_llm_general_metrics", 'general_type="iteration_counter"'),
    ("nv_llm_output_token_len_count", ""),
    ("nv_inference_request_success", ""),
)
_STEPS = "specdec_engine_steps_total"
# Requests of an engine, which the Reference backend and TensorRT-LLM report.
_WORK = (
    ("specdec_engine_requests", ""),
    ("nv_trt_llm_request_metrics", 'request_type="active"'),
    ("nv_trt_llm_request_metrics", 'request_type="waiting"'),
)
_QUEUED = "nv_inference_pending_request_count"


class Plan(NamedTuple):
    """The server that is probed; see the module."""

    http: int
    metrics: int
    engines: tuple[str, ...]
    seconds: float
    patience: float
    request: Mapping[str, Any]
    output: str
    counters: Sequence[Sequence[str]] = _COUNTERS
    work: Sequence[Sequence[str]] = _WORK
    ranks: int = 0
    mark: str = ""
    grpc: int = 0
    encrypted: bool = False


# Not a dataclass: that module takes a fifth of the time of a probe.
class Record:
    """What is known of an engine, or of the ranks.

    Args:
        at: when it last gave proof that it works, on the monotonic clock.
        progress: its counters then.
        unanswered: requests of this probe since then that it has not answered.
        failed: whether it has failed since then.
    """

    def __init__(
        self,
        at: float,
        progress: Mapping[str, float] | None = None,
        *,
        unanswered: int = 0,
        failed: bool = False,
    ) -> None:
        self.at = at
        self.progress = dict(progress or {})
        self.unanswered = unanswered
        self.failed = failed


def startup(plan: Plan) -> str:
    """Prove once that every engine gives a token; returns why not, or the empty string."""
    deadline = time.monotonic() + plan.seconds
    pending, problem = list(plan.engines), "the server is not ready"
    while pending:
        left = deadline - time.monotonic()
        if left < min(_LEAST, plan.seconds / 2):
            return problem
        if ready(plan.http):
            # An engine may need longer for a token than one attempt lasts. If it has run a step,
            # it has given the token of an earlier attempt.
            stepped = value(_page(plan.metrics), _STEPS, pending[0])
            problem = "" if stepped else token(plan, pending[0], left)[0]
            if not problem:
                pending.pop(0)
                continue
        time.sleep(_POLL)
    page, now = _page(plan.metrics), time.monotonic()
    save({engine: Record(now, progress(page, engine, plan.counters)) for engine in plan.engines})
    _count("")
    return ""


def certain(plan: Plan) -> str:
    """The problem of `readiness`: if no process has died, only at the third run in a row."""
    if problem := dead(plan):
        return problem
    problem = check(plan)
    return problem if _count(problem) >= _RUNS else ""


def readiness(plan: Plan) -> str:
    """The present problem of a server that has started; or the empty string."""
    return dead(plan) or check(plan)


def dead(plan: Plan) -> str:
    """Whether a process of the server has died, in one sentence; or the empty string."""
    alive = _beside("alive")
    if any(alive.dead(plan.http)):
        return str(alive.DEAD)
    if not plan.ranks:
        return ""
    records, running = load(), alive.ranks(plan.mark)
    record = records.setdefault("ranks", Record(time.monotonic()))
    record.failed = running < plan.ranks
    if not record.failed:
        record.at = time.monotonic()
    save(records)
    return f"{plan.ranks - running} of {plan.ranks} ranks have died" if record.failed else ""


def check(plan: Plan) -> str:
    """The present problem of a server whose processes run, which may pass; or the empty string."""
    deadline = time.monotonic() + _CHECK
    if not ready(plan.http):
        return "the server is not ready"
    records = load()
    problems = [_streams(plan, records)] if plan.grpc else []
    page = _page(plan.metrics)
    for engine in plan.engines:
        record = records.setdefault(
            engine, Record(time.monotonic(), progress(page, engine, plan.counters))
        )
        problems.append(_engine(plan, engine, record, page, deadline))
    save(records)
    return "; ".join(problem for problem in problems if problem)


def _count(problem: str) -> int:
    """Count a run with a problem; a run without one begins anew."""
    file = STATE.with_name(f"{STATE.name}-runs")
    try:
        runs = int(file.read_text("ascii"))
    except (OSError, ValueError):
        runs = 0
    runs = runs + 1 if problem else 0
    file.write_text(str(runs), "ascii")
    return runs


def _beside(name: str) -> Any:
    """Another program of the folder, as a module."""
    # Python's option -I leaves out the folder of the program.
    sys.path.insert(0, str(Path(__file__).parent))
    return importlib.import_module(name)


def _streams(plan: Plan, records: dict[str, Record]) -> str:
    problem: str = _beside("streams").problem(plan.grpc, _STREAM, encrypted=plan.encrypted)
    record = records.setdefault("gRPC streams", Record(time.monotonic()))
    record.failed = bool(problem)
    if not problem:
        record.at = time.monotonic()
    return problem


def _engine(plan: Plan, engine: str, record: Record, page: str, deadline: float) -> str:
    now, counters = time.monotonic(), progress(page, engine, plan.counters)
    if any(count > record.progress.get(name, 0.0) for name, count in counters.items()):
        _prove(record, counters)
        return ""
    asked = record.failed or record.unanswered > 0
    if not asked and now - record.at < _QUIET:
        return ""
    working, left = busy(plan, page, engine, record.unanswered), min(deadline - now, _ANSWER)
    if left < _LEAST or (working and asked and not record.failed):
        # Its work includes a request of this probe, whose answer will show as progress.
        return _judge(record, plan, f"{engine} makes no progress")
    problem, waits = token(plan, engine, left)
    if not problem:
        _prove(record, counters)
        return ""
    record.unanswered += waits
    working = working or busy(plan, _page(plan.metrics), engine, record.unanswered)
    record.failed |= not working
    return _judge(record, plan, problem)


def _judge(record: Record, plan: Plan, problem: str) -> str:
    record.failed |= time.monotonic() - record.at > plan.patience
    return problem if record.failed else ""


def _prove(record: Record, counters: Mapping[str, float]) -> None:
    record.at, record.progress = time.monotonic(), {**record.progress, **counters}
    record.unanswered, record.failed = 0, False


def ready(port: int) -> bool:
    """Whether the server reports itself and its models as ready."""
    try:
        return _get(port, "/v2/health/ready")[0] == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def token(plan: Plan, engine: str, seconds: float) -> tuple[str, bool]:
    """Ask an engine for one token.

    Returns:
        why it gave none, or the empty string, and whether the request still waits there.
    """
    # Where HTTP is closed to clients, the key of this container opens it.
    key = {HEADER: KEY.read_text("ascii")} if KEY.exists() else {}
    connection = http.client.HTTPConnection("127.0.0.1", plan.http, timeout=seconds)
    try:
        connection.request("POST", f"/v2/models/{engine}/generate", json.dumps(plan.request), key)
        answer = json.loads(connection.getresponse().read())
    except TimeoutError:
        return f"{engine} gave no token within {seconds:.0f} s", True
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{engine} gave no token ({type(error).__name__})", False
    finally:
        connection.close()
    if isinstance(answer, Mapping) and answer.get(plan.output) not in (None, []):
        return "", False
    why = answer.get("error", "") if isinstance(answer, Mapping) else ""
    return f"{engine} gave no token: {str(why)[:200]}", False


def progress(page: str, engine: str, known: Sequence[Sequence[str]]) -> dict[str, float]:
    """The counters of an engine that grow only while it works, by name."""
    counters = known if value(page, _STEPS, engine) is None else ((_STEPS, ""),)
    counts = {name: value(page, name, engine, label) for name, label in counters}
    return {name: count for name, count in counts.items() if count is not None}


def busy(plan: Plan, page: str, engine: str, own: int) -> bool:
    """Whether an engine may have more requests than `own`; true if no metric counts requests."""
    counts = [value(page, name, engine, label) for name, label in plan.work]
    known = [count for count in counts if count is not None]
    return not known or sum(known) + (value(page, _QUEUED, engine) or 0) > own


def value(page: str, name: str, engine: str, label: str = "") -> float | None:
    """A metric of an engine; None if the page lacks it."""
    own = f'model="{engine}"'
    lines = [line for line in page.splitlines() if line.startswith(name + "{") and own in line]
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if label in line]
    return sum(values) if values else None


def load() -> dict[str, Record]:
    """The records of the last probe."""
    try:
        return {name: Record(**entry) for name, entry in json.loads(STATE.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save(records: Mapping[str, Record]) -> None:
    """Write the records for the next probe, and for the liveness probe."""
    part = STATE.with_name(f"{STATE.name}.part")
    part.write_text(json.dumps({name: vars(record) for name, record in records.items()}))
    part.replace(STATE)


def _page(port: int) -> str:
    try:
        return _get(port, "/metrics")[1]
    except (OSError, http.client.HTTPException):
        # Without metrics there is no progress to see: every check asks for a token.
        return ""


def _get(port: int, path: str) -> tuple[int, str]:
    # Not urllib: it would send the request to a proxy of the environment.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_REPLY)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode("utf-8", "replace")
    finally:
        connection.close()


_PROBES: Mapping[str, Callable[[Plan], str]] = {"startup": startup, "readiness": certain}


def main(probe: str, text: str) -> str:
    """Run a probe on a plan in JSON."""
    plan: dict[str, Any] = json.loads(text)
    return _PROBES[probe](Plan(**plan))


if __name__ == "__main__":
    if wrong := main(*sys.argv[1:]):
        sys.exit(wrong)
