"""The probes of a server's container, around the programs that its kind of server has."""

import math
from typing import Any

from specdec.servers.kind import Probing, Serving
from specdec.triton.launch import Tls
from specdec.triton.layout import Launch

_PERIOD = 5
# Seconds that a busy node needs to start a program.
_START = 2
# Seconds by which a failed run may end before its time is over: no request starts in the last one.
_EARLY = 1
# Seconds. The kubelet counts the first period from the pod's creation, when no container runs, so
# that a longer period would delay every start.
_STARTUP_PERIOD = 1
# Seconds. A pod whose readiness probe does not end leaves its Service after this time.
_HANGS = 30
# Seconds. Three failures restart the server, 20 to 30 seconds after it began to fail.
_LIVENESS_PERIOD = 10
# Seconds. An engine with work may show no progress for at least this long before a probe fails.
_LEAST_PATIENCE = 60


def probes(
    server: Serving,
    launch: Launch,
    engines: tuple[str, ...],
    *,
    checkpoint: str,
    name: str,
    budget_seconds: int,
    drain_seconds: int,
    tls: Tls | None,
) -> dict[str, Any]:
    """The three probes.

    Args:
        server: how the server runs.
        launch: how it is started.
        engines: models that must give tokens.
        checkpoint: the directory of the target.
        name: of the resource.
        budget_seconds: how long the server may load.
        drain_seconds: how long a request may take, and an engine may show no progress.
        tls: of the port for gRPC.
    """
    attempt = server.attempt_seconds - _START
    patience = max(_LEAST_PATIENCE, drain_seconds)
    programs = server.probes(Probing(launch, engines, checkpoint, name, attempt, patience, tls))
    # The runs follow each other without a pause.
    attempts = math.ceil(budget_seconds / (attempt - _EARLY))
    failures, longest = server.readiness_failures, server.attempt_seconds
    return {
        "startupProbe": _probe(programs.startup, attempts, _STARTUP_PERIOD, longest),
        "readinessProbe": _probe(programs.readiness, failures, _PERIOD, _HANGS // failures),
        "livenessProbe": _probe(programs.liveness, 3, _LIVENESS_PERIOD, 9),
    }


def _probe(program: list[str], failures: int, period: int, timeout: int) -> dict[str, Any]:
    return {
        "exec": {"command": program},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
