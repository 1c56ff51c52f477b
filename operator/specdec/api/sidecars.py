"""`spec.serving.sidecars`: containers that a resource adds to its server pods.

The fields are as in a container of a pod. None of them can loosen the restricted profile: a
sidecar has the operator's security context and no devices. It mounts only volumes of
`extraVolumes`, and its probes reach only its own pod.
"""

from typing import Literal

from specdec.api.pods import Variable
from specdec.api.value import Value
from specdec.api.volumes import ExtraVolumeMount


class SidecarPort(Value):
    """A port on which a sidecar listens."""

    container_port: int
    name: str | None = None
    protocol: Literal["TCP", "UDP"] = "TCP"


class Exec(Value):
    """A command in the container."""

    command: tuple[str, ...]


class HttpGet(Value):
    """A request to a port of the pod."""

    port: int
    path: str = "/"
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"


class TcpSocket(Value):
    """A connection to a port of the pod."""

    port: int


class Grpc(Value):
    """A request of the gRPC health protocol to a port of the pod."""

    port: int
    service: str | None = None


class SidecarProbe(Value):
    """A probe with exactly one kind of check; unset numbers are the defaults of Kubernetes."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    grpc: Grpc | None = None
    initial_delay_seconds: int | None = None
    period_seconds: int | None = None
    timeout_seconds: int | None = None
    failure_threshold: int | None = None


class SidecarResources(Value):
    """Processors, memory and local storage of a sidecar."""

    requests: dict[str, int | str] | None = None
    limits: dict[str, int | str] | None = None


class Sidecar(Value):
    """A container that starts before the server and stops after it."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    ports: tuple[SidecarPort, ...] = ()
    resources: SidecarResources = SidecarResources()
    startup_probe: SidecarProbe | None = None
    readiness_probe: SidecarProbe | None = None
    liveness_probe: SidecarProbe | None = None
    volume_mounts: tuple[ExtraVolumeMount, ...] = ()
