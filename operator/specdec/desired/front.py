"""The front end of a server: its ports, its arguments, its probes and its preStop hook.

Builders take all of these from one `Front`. To support another front end, add a value here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from specdec.api.matrix import support
from specdec.api.model import SpeculativeModel
from specdec.api.model_spec import ModelSpec
from specdec.client.model_names import BLS, TARGET
from specdec.desired import trtllm_serve
from specdec.triton import launch, probes
from specdec.triton.launch import Tls
from specdec.triton.layout import Launch
from specdec.triton.probes import Programs

_PERIOD = 5
# Seconds of one run of the startup probe. A run polls the server for most of this time, so that a
# small model is ready soon. Each run leaves at most one request for a token behind.
_ATTEMPT = 10
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


@dataclass(frozen=True)
class Front:
    """One kind of server program: its ports, command line, probes and preStop hook.

    Attributes:
        ports: numbers by name, in the order of the container's and the Service's lists.
        model: the Triton model that reads and writes text.
        http, grpc, metrics: which of the ports serve the two protocols and the metrics.
        programs: returns the command lines of the probes; takes what `probes.programs` takes.
        command: returns the command line of the server; takes what `_tritonserver` takes.
        environment: returns the variables of every container that runs MPI ranks of the server.
        pre_stop: returns the command line of the hook that drains the server before it gets
            SIGTERM; takes what `launch.pre_stop` takes.
        files: the programs of `images/serving` that run in the pod.
        openai: the port that serves the OpenAI API, if the server does so itself.
        proxy: whether the server listens on localhost and a proxy in its pod has the ports. Such a
            server is not a tritonserver.
        verification: the decoding path that the verification Job measures; empty if the method
            determines it (`SpeculativeModel.control`).
        packages: whether the server needs `desired/packages.py`: it imports TensorRT-LLM's Python
            package in an image of Triton.
        attempt_seconds: how long one run of the startup probe may take.
        readiness_failures: how often in a row the readiness probe fails before the pod leaves its
            Service. That of Triton counts the problems that may pass itself.
    """

    ports: Mapping[str, int]
    programs: Callable[..., Programs]
    command: Callable[..., list[str]]
    environment: Callable[[Launch], dict[str, str]]
    pre_stop: Callable[..., list[str]]
    files: tuple[str, ...] = (
        "alive.py",
        "check_volume.py",
        "drain.py",
        "engines.py",
        "renewal.py",
        "streams.py",
    )
    model: str = BLS
    http: str = "http"
    grpc: str = "grpc"
    metrics: str = "metrics"
    openai: str = ""
    proxy: bool = False
    verification: str = ""
    packages: bool = False
    attempt_seconds: int = _ATTEMPT
    readiness_failures: int = 1

    def clients(self, model: SpeculativeModel) -> tuple[str, ...]:
        """The ports that serve clients; HTTP is left out if its port only reports health."""
        names = (self.http, self.grpc) if model.spec.serving.takes_http else (self.grpc,)
        return tuple(name for name in names if name in self.ports)

    def service_ports(self, model: SpeculativeModel) -> tuple[str, ...]:
        """The ports of the Service: those of clients, and the metrics."""
        served = {*self.clients(model), self.metrics}
        return tuple(name for name in self.ports if name in served)

    def container_ports(self) -> list[dict[str, Any]]:
        """The ports of the server's container; none behind a proxy."""
        ports = {} if self.proxy else self.ports
        return [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in ports.items()
        ]

    def drain_ports(self, model: SpeculativeModel) -> dict[str, Any]:
        """Port arguments of the preStop hook: it reads metrics, and waits for clients to leave.

        The clients of the OpenAI endpoint count too, so that the endpoint ends before the server.
        """
        endpoint = model.spec.serving.open_ai
        more = (endpoint.port,) if endpoint else ()
        clients = (self.ports[name] for name in (self.http, self.grpc) if name in self.ports)
        return {"metrics_port": self.ports[self.metrics], "client_ports": (*clients, *more)}

    def probes(
        self,
        launch: Launch,
        engines: Sequence[str],
        *,
        checkpoint: str,
        budget_seconds: int,
        drain_seconds: int,
        tls: Tls | None,
    ) -> dict[str, Any]:
        """The probes of the server's container.

        Args:
            launch: how the server is started.
            engines: models that must give tokens.
            checkpoint: the directory of the target.
            budget_seconds: how long the server may load.
            drain_seconds: how long a request may take, and an engine may show no progress.
            tls: of the port for gRPC.
        """
        attempt = self.attempt_seconds - _START
        programs = self.programs(
            launch,
            engines,
            attempt_seconds=attempt,
            patience_seconds=max(_LEAST_PATIENCE, drain_seconds),
            checkpoint=checkpoint,
            http_port=self.ports[self.http],
            grpc_port=self.ports.get(self.grpc, 0),
            tls=tls,
            metrics_port=self.ports[self.metrics],
        )
        # The runs follow each other without a pause.
        attempts = math.ceil(budget_seconds / (attempt - _EARLY))
        failures = self.readiness_failures
        return {
            "startupProbe": _probe(
                programs.startup, attempts, _STARTUP_PERIOD, self.attempt_seconds
            ),
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


def _tritonserver(
    *arguments: Any, checkpoint: str, target: ModelSpec, **options: Any
) -> list[str]:
    # The model repository has the checkpoint and the target's settings.
    del checkpoint, target
    return launch.command(*arguments, **options)


def _triton_programs(*arguments: Any, checkpoint: str, **options: Any) -> Programs:
    # Requests name a Triton model.
    del checkpoint
    return probes.programs(*arguments, **options)


TRITON = Front(
    ports=launch.PORTS,
    programs=_triton_programs,
    command=_tritonserver,
    environment=launch.environment,
    pre_stop=launch.pre_stop,
)


def _llm_api_environment(launch_: Launch) -> dict[str, str]:
    """The model is in one process of the server, which starts the ranks."""
    del launch_
    return dict(launch.SPAWNED_RANKS)


# The LLM API's model answers with text. Its ports are those of Triton.
LLM_API = replace(
    TRITON,
    programs=partial(_triton_programs, answer="text"),
    environment=_llm_api_environment,
    model=TARGET,
    packages=True,
)
TRTLLM_SERVE = Front(
    ports=trtllm_serve.PORTS,
    programs=trtllm_serve.programs,
    command=trtllm_serve.command,
    environment=trtllm_serve.environment,
    pre_stop=trtllm_serve.pre_stop,
    files=("check_volume.py", "drain.py", "health.py"),
    openai="http",
    proxy=True,
    verification="OpenAI",
    # The server aborts a request whose client disconnects, and a first token may take this long.
    attempt_seconds=30,
    readiness_failures=3,
)
# By the name in the backend's row of api/support.yaml.
_FRONTS = {"Triton": TRITON, "LlmApi": LLM_API, "TrtllmServe": TRTLLM_SERVE}


def front(model: SpeculativeModel) -> Front:
    """The front end of a resource's servers."""
    runtime = model.spec.runtime
    return _FRONTS[support(runtime.backend).front(runtime.frontend)]
