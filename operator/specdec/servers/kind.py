"""A kind of model server: the value by which the operator starts it and clients speak to it.

A kind is a package beside this module. The table of backends (`api/support.yaml`) names the kind
of each front end, and nothing else asks for a kind by its name. A new kind is a new package: its
modules have the constants `SERVING`, `REQUESTS` and `COUNTERS`, and behind a proxy also `BODIES`.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from specdec.triton.log_lines import LogLines

if TYPE_CHECKING:
    # Jobs and endpoints read only `requests` and `counters`, and need no model of the resource.
    from specdec.api.model import SpeculativeModel
    from specdec.api.model_spec import ModelSpec
    from specdec.servers.counting import Counters
    from specdec.servers.encoding import Requests
    from specdec.servers.passed_body import Operations
    from specdec.triton.launch import Tls
    from specdec.triton.layout import Launch
    from specdec.triton.probes import Programs

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True)
class Start:
    """What the command line of a server depends on.

    Attributes:
        launch: its processes.
        directory: its repository inside the pod.
        checkpoint: the directory of the target.
        target: the target's settings.
        name: of the resource.
        version: of the server's software.
        exit_timeout_seconds: after SIGTERM, how long running requests may take to finish.
        connection_age_seconds: how long a client may keep one gRPC connection.
        tls: of the port for gRPC.
        health_only: HTTP only reports health.
        log_verbose: level of the log, 0 to 3.
    """

    launch: "Launch"
    directory: str
    checkpoint: str
    target: "ModelSpec"
    name: str
    version: str
    exit_timeout_seconds: int
    connection_age_seconds: int
    tls: "Tls | None" = None
    health_only: bool = False
    log_verbose: int = 0


@dataclass(frozen=True)
class Probing:
    """What the probes of a server depend on.

    Attributes:
        launch: its processes.
        engines: the models that must give tokens, by the names in `Serving.models`.
        checkpoint: the directory of the target.
        name: of the resource.
        attempt_seconds: how long one run of the startup probe tries.
        patience_seconds: how long an engine may show no progress, or a token may take.
        tls: of the port for gRPC.
    """

    launch: "Launch"
    engines: tuple[str, ...]
    checkpoint: str
    name: str
    attempt_seconds: float
    patience_seconds: float
    tls: "Tls | None" = None


@dataclass(frozen=True)
class Stopping:
    """What the preStop hook of a server depends on.

    Attributes:
        launch: its processes.
        linger_seconds: first wait: the server goes on serving while endpoints are removed.
        reconnect_seconds: second wait: clients close their connections, and move to another pod.
        exit_timeout_seconds: last wait: running requests may take this long to finish.
        client_ports: further ports in the pod whose connections the second wait counts.
    """

    launch: "Launch"
    linger_seconds: int
    reconnect_seconds: int
    exit_timeout_seconds: int
    client_ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class Proxy:
    """The server behind a proxy in its pod, which has the ports of the pod.

    Attributes:
        address: host and port of the server, for containers of its pod only.
        model: the name of its model in requests, by the names of the resource and of the directory
            of the target's checkpoint.
        health, page: paths of the server's report on its health, and of its metrics.
        owner: the owner of the model in the list of models.
    """

    address: str
    model: Callable[[str, str], str]
    health: str
    page: str
    owner: str


@dataclass(frozen=True)
class Serving:
    """How the operator runs a server: pure values, and functions that return command lines.

    Attributes:
        ports: numbers by name, in the order of the container's and the Service's lists.
        models: the Triton model of each role that the probes ask for a token; empty without one.
        command: the command line of the server.
        environment: the variables of every container that runs MPI ranks of the server.
        probes: the command lines of the probes.
        pre_stop: the command line of the hook that drains the server before it gets SIGTERM.
        files: the programs of `images/serving` that run in the pod.
        http, grpc, metrics: the ports of the two protocols and of the metrics.
        openai: the port that serves the OpenAI API, if the server does so itself.
        proxy: None if clients reach the server itself.
        tritonserver: whether it is one, which has the publicly known faults of its release.
        packages: whether the server imports TensorRT-LLM's Python package in an image of Triton,
            and so needs `desired/packages.py`.
        log: the lines of its log that name a cause or a step of its start.
        attempt_seconds: how long one run of the startup probe may take. It polls the server for
            most of this time, so that a small model is ready soon. Each run leaves at most one
            request for a token behind.
        readiness_failures: how often in a row the readiness probe fails before the pod leaves its
            Service. The probe of Triton counts the problems that may pass itself.
    """

    ports: Mapping[str, int]
    command: "Callable[[Start], list[str]]"
    environment: "Callable[[Launch], Mapping[str, str]]"
    probes: "Callable[[Probing], Programs]"
    pre_stop: "Callable[[Stopping], list[str]]"
    files: tuple[str, ...]
    log: LogLines
    models: Mapping[str, str] = field(default_factory=dict)
    http: str = "http"
    grpc: str = "grpc"
    metrics: str = "metrics"
    openai: str = ""
    proxy: Proxy | None = None
    tritonserver: bool = False
    packages: bool = False
    attempt_seconds: int = 10
    readiness_failures: int = 1

    def clients(self, *, takes_http: bool) -> tuple[str, ...]:
        """The ports that serve clients; HTTP is left out if its port only reports health."""
        names = (self.http, self.grpc) if takes_http else (self.grpc,)
        return tuple(name for name in names if name in self.ports)


@dataclass(frozen=True)
class ServerKind:
    """One kind of server; two are equal if their names are.

    Each part is loaded at its first use: a Job that sends requests needs no command lines.

    Attributes:
        name: its package beside this module.
    """

    name: str

    @cached_property
    def serving(self) -> Serving:
        """How the operator runs it."""
        value: Serving = self._part("serving").SERVING
        return value

    @cached_property
    def requests(self) -> "Requests":
        """How clients speak to it."""
        value: Requests = self._part("requests").REQUESTS
        return value

    @cached_property
    def counters(self) -> "Counters":
        """Where its draft counts come from."""
        value: Counters = self._part("counters").COUNTERS
        return value

    @cached_property
    def bodies(self) -> "Operations":
        """What the proxy passes on; only a kind with a proxy has this part."""
        value: Operations = self._part("bodies").BODIES
        return value

    def _part(self, module: str) -> Any:
        return import_module(f"{_PACKAGE}.{self.name}.{module}")


@cache
def kind(name: str) -> ServerKind:
    """The kind with this name."""
    return ServerKind(name)


@cache
def kinds() -> tuple[ServerKind, ...]:
    """Every kind, by name."""
    folder = import_module(_PACKAGE).__path__
    return tuple(kind(item.name) for item in pkgutil.iter_modules(folder) if item.ispkg)


def of(model: "SpeculativeModel") -> ServerKind:
    """The kind of a resource's servers."""
    # Jobs and commands import this package without a resource, and need no table of backends.
    from specdec.api.matrix import support

    runtime = model.spec.runtime
    return kind(support(runtime.backend).front(runtime.frontend))
