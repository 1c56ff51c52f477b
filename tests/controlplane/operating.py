"""The operator as a process, and a namespace whose Jobs and pods a test controls."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from cluster import ClusterError, ControlPlane, processes
from cluster.processes import DEADLINE_SECONDS
from controlplane.metrics import total
from controlplane.reading import Reader
from specdec.api import names
from support.ports import reserved

Object = dict[str, Any]
T = TypeVar("T")

ACCOUNT = ("specdec-system", "specdec-operator")
WRITES = ("apply", "apply_status", "create", "delete", "patch")
POD_JOB = "batch.kubernetes.io/job-name"


def until(check: Callable[[], T | None], what: str | Callable[[], str]) -> T:
    """Wait until `check` returns a true value, and return it; `what` describes the state."""
    values: list[T] = []

    def true() -> bool:
        value = check()
        if value:
            values.append(value)
        return bool(value)

    def missing() -> str:
        return f"not within {DEADLINE_SECONDS} s: {what if isinstance(what, str) else what()}"

    processes.until(true, missing, step=0.2)
    return values[-1]


class Operator:
    """The operator as a process with a kubeconfig; tests read its metrics."""

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        **environment: str,
    ) -> None:
        self.log = log
        self._kubeconfig = kubeconfig
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = contextlib.ExitStack()
        self._health = self._metrics = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._health, self._metrics = self._reserved.enter_context(reserved(2))
        argv = [
            *(sys.executable, "-m", "specdec.controller", "--log-format=json"),
        ]
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "SPECDEC_HEALTH_PORT": str(self._health),
            "SPECDEC_METRICS_PORT": str(self._metrics),
            **self._environment,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
        until(lambda: self.healthy() == 200, lambda: f"a healthy operator: {self.log_tail()}")

    def stop(self) -> int:
        """Stop the operator with SIGTERM, as the kubelet does; return its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the operator, which has the effect of a crash."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        return self.wait()

    def ended(self) -> bool:
        """Return whether the operator has ended, by itself or because a test stopped it."""
        return self._process is None or self._process.poll() is not None

    def wait(self) -> int:
        """Wait until the operator has ended; return its exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        status = process.wait(timeout=DEADLINE_SECONDS)
        self._reserved.close()
        return status

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log_tail(self) -> str:
        return self.log.read_text()[-4000:]

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._metrics}/metrics"

    def healthy(self) -> int:
        """Return the HTTP status of the liveness probe, or 0 when the connection fails."""
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended: {self.log_tail()}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/healthz") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels."""
        pairs = [f'{key}="{value}"' for key, value in labels.items()]
        return total(self.page(), name, pairs)

    def reconciles(self) -> float:
        return self.metric("specdec_reconciles_total")

    def writes(self) -> float:
        return self.done()[1]

    def done(self) -> tuple[float, float]:
        """Return the numbers of reconciles and writes so far, from the same page of metrics."""
        page = self.page()
        verbs = (total(page, "specdec_api_requests_total", [f'verb="{v}"']) for v in WRITES)
        return total(page, "specdec_reconciles_total"), sum(verbs)

    def page(self) -> list[str]:
        """Return the lines of the operator's metrics."""
        with urllib.request.urlopen(self.metrics_url) as answer:
            lines: list[str] = answer.read().decode().splitlines()
        return lines

    def resident_mib(self) -> float:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


class Lab:
    """A namespace whose Jobs and pods a test controls; the context creates and deletes it."""

    def __init__(self, plane: ControlPlane, operator: Operator, namespace: str = "") -> None:
        self.plane = plane
        self.operator = operator
        self.namespace = namespace or f"lab-{secrets.token_hex(4)}"
        self._reader = Reader(plane.kubeconfig, self.namespace)

    def __enter__(self) -> Self:
        self._reader.open()
        return self

    def __exit__(self, *_: object) -> None:
        # `close` deletes the resources first. The namespace waits for its pods, and pods of
        # unfinished Jobs never end here: the operator would reconcile and never be idle.
        self._reader.close()

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        return self.plane.kubectl("-n", self.namespace, *args, stdin=stdin)

    def apply(self, *bodies: Object) -> None:
        for body in bodies:
            self._reader.apply(body)

    def patch(self, kind: str, name: str, change: Object) -> None:
        self._reader.patch(kind, name, change)

    def get(self, kind: str, name: str) -> Object | None:
        """Return the object, or None when it does not exist."""
        return self._reader.get(kind, name)

    def all(self, kind: str, selector: str = "") -> list[Object]:
        return self._reader.all(kind, selector)

    def condition(self, name: str, kind: str = "Ready") -> Object:
        """Return a condition of a SpeculativeModel; empty while the condition does not exist."""
        body = self.get("specm", name) or {}
        conditions = body.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def wait(
        self, name: str, kind: str = "Ready", status: str = "True", reason: str = ""
    ) -> Object:
        """Wait until the condition has this status and, if given, this reason; return it."""

        def check() -> Object | None:
            condition = self.condition(name, kind)
            reached = condition.get("status") == status and (
                reason in ("", condition.get("reason"))
            )
            return condition if reached else None

        return until(check, lambda: f"{kind}={status}/{reason}: {self.describe(name)}")

    def describe(self, name: str) -> str:
        """Return the conditions of the resource and the end of the log, for a failed test."""
        body = self.get("specm", name) or {}
        lines = [
            f"{c['type']}={c['status']} {c['reason']}: {c['message']}"
            for c in body.get("status", {}).get("conditions", [])
        ]
        return "\n  ".join(["", *lines, self.operator.log_tail()])

    def jobs(self, component: str) -> list[str]:
        """Return the sorted names of a component's Jobs that are not being deleted."""
        jobs = self.all("jobs", f"{names.COMPONENT}={component}")
        return sorted(
            j["metadata"]["name"] for j in jobs if "deletionTimestamp" not in j["metadata"]
        )

    def job(self, component: str, known: tuple[str, ...] = ()) -> str:
        """Wait until the component has a Job that is not in `known`; return its name."""

        def check() -> str | None:
            fresh = [name for name in self.jobs(component) if name not in known]
            assert len(fresh) <= 1, fresh
            return fresh[0] if fresh else None

        missing = f"a {component} Job in {self.namespace}"
        return until(check, lambda: f"{missing}: {self.operator.log_tail()}")

    def finish(self, job: str, message: Object | str, exit_code: int = 0) -> None:
        """Wait until a pod of the Job runs, and end it with a termination message."""
        text = message if isinstance(message, str) else json.dumps(message)
        pod = until(lambda: self._running(job), f"a running pod of Job {job}")
        self.plane.finish(self.namespace, pod, message=text, exit_code=exit_code)

    def _running(self, job: str) -> str | None:
        for pod in self.all("pods", f"{POD_JOB}={job}"):
            with contextlib.suppress(KeyError):
                if pod["status"]["phase"] == "Running":
                    return str(pod["metadata"]["name"])
        return None

    def missing(self, kind: str, name: str) -> bool:
        return self.get(kind, name) is None

    def refused(self, *args: str) -> str:
        """Return the error message of a kubectl call, which must fail."""
        try:
            self.kubectl(*args)
        except ClusterError as error:
            return str(error)
        raise AssertionError(f"kubectl {' '.join(args)} was not refused")
