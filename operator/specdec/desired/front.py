"""The front end of a server: its ports, its arguments, its probes and its preStop hook.

Builders take all of these from one `Front`. To support another front end, add a value here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.triton import launch
from specdec.triton.layout import Launch

_PERIOD = 5
# Seconds, as above. A starting server is probed more often: a small model loads in seconds.
_STARTUP_PERIOD = 2


@dataclass(frozen=True)
class Front:
    """One kind of server program: its ports, command line, probes and preStop hook.

    Attributes:
        ports: numbers by name, in the order of the container's and the Service's lists.
        http, grpc, metrics: which of the ports serve the two protocols and the metrics.
        ready: HTTP path of the startup and readiness probes.
        alive: arguments of the liveness probe, from the number of the HTTP port.
        command: arguments of the server's container.
        environment: variables of every container that runs MPI ranks of the server.
        pre_stop: arguments of the hook that drains the server before it gets SIGTERM.
    """

    ports: Mapping[str, int]
    ready: str
    alive: Callable[[int], list[str]]
    command: Callable[..., list[str]]
    environment: Callable[[Launch], dict[str, str]]
    pre_stop: Callable[..., list[str]]
    http: str = "http"
    grpc: str = "grpc"
    metrics: str = "metrics"

    def clients(self, model: SpeculativeModel) -> tuple[str, ...]:
        """The ports that serve clients; without HTTP if that port only reports health."""
        return (self.http, self.grpc) if model.spec.serving.takes_http else (self.grpc,)

    def service_ports(self, model: SpeculativeModel) -> tuple[str, ...]:
        """The ports of the Service: those of clients, and the metrics."""
        served = {*self.clients(model), self.metrics}
        return tuple(name for name in self.ports if name in served)

    def container_ports(self) -> list[dict[str, Any]]:
        """The ports of the server's container."""
        return [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in self.ports.items()
        ]

    def drain_ports(self) -> dict[str, Any]:
        """Port arguments of the preStop hook: it reads metrics, and waits for clients to leave."""
        clients = (self.ports[self.http], self.ports[self.grpc])
        return {"metrics_port": self.ports[self.metrics], "client_ports": clients}

    def probes(self, startup_budget_seconds: int) -> dict[str, Any]:
        """The probes of the server's container."""
        failures = math.ceil(startup_budget_seconds / _STARTUP_PERIOD)
        return {
            "startupProbe": self._get(failures, _STARTUP_PERIOD),
            "readinessProbe": self._get(3, _PERIOD),
            "livenessProbe": self._alive(),
        }

    def _get(self, failures: int, period: int) -> dict[str, Any]:
        return {
            "httpGet": {"path": self.ready, "port": self.http, "scheme": "HTTP"},
            "periodSeconds": period,
            "timeoutSeconds": 4,
            "failureThreshold": failures,
            "successThreshold": 1,
        }

    def _alive(self) -> dict[str, Any]:
        """The liveness probe: a program that also checks the processes of the server's models."""
        return {
            "exec": {"command": self.alive(self.ports[self.http])},
            "periodSeconds": _PERIOD,
            # On a busy node it takes seconds to start a program.
            "timeoutSeconds": 9,
            "failureThreshold": 6,
            "successThreshold": 1,
        }


TRITON = Front(
    ports=launch.PORTS,
    ready="/v2/health/ready",
    alive=launch.alive,
    command=launch.command,
    environment=launch.environment,
    pre_stop=launch.pre_stop,
)
# By the name in the backend's row of api/support.yaml.
_FRONTS = {"Triton": TRITON}


def front(model: SpeculativeModel) -> Front:
    """The front end of a resource's servers."""
    return _FRONTS[support(model.spec.runtime.backend).front]
