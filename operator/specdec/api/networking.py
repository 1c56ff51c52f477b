"""How clients reach the server, and which clients may."""

from typing import Literal

from pydantic import Field

from specdec.api.source import AuthorityRef
from specdec.api.value import PodShaped, Reference, Value


class ServiceOptions(Value):
    """What kind of Service stands in front of the pods."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"


class ParentRef(Value):
    """A Gateway that a route is attached to; the Gateway decides which namespaces may attach."""

    name: str
    namespace: str | None = None
    section_name: str | None = None
    port: int | None = None


class RouteSplit(Value):
    """The percentage of a route's requests that go to another resource of the namespace."""

    model_ref: Reference
    percent: int


class GatewayRoute(Value):
    """An HTTPRoute of the Gateway API to the server's HTTP port."""

    parent_refs: tuple[ParentRef, ...]
    hostnames: tuple[str, ...] = ()
    split: RouteSplit | None = None


class IngressRoute(Value):
    """An Ingress to the server's HTTP port."""

    hosts: tuple[str, ...]
    class_name: str | None = None
    tls_secret_name: str | None = None


class ServingPolicy(Value):
    """Which clients may reach serving pods: pods of the namespace, and those that `from` adds.

    If it is enabled, further policies restrict the connections of the resource's Jobs.
    """

    mode: Literal["Enabled", "Disabled"] = "Disabled"
    from_: tuple[PodShaped, ...] = Field(default=(), alias="from")


class Tls(Value):
    """The certificate of the gRPC endpoint, from a Secret of type `kubernetes.io/tls`.

    The operator's own clients trust its `ca.crt`, if it has one. With `clientCA` the server
    requires client certificates; `clientSecretName` holds the one that measuring Jobs use.
    """

    secret_name: str
    client_ca: AuthorityRef | None = Field(default=None, alias="clientCA")
    client_secret_name: str | None = None


class Networking(Value):
    """The Service, at most one route from outside, and the pods' NetworkPolicy."""

    service: ServiceOptions = ServiceOptions()
    gateway: GatewayRoute | None = None
    ingress: IngressRoute | None = None
    network_policy: ServingPolicy = ServingPolicy()

    @property
    def split(self) -> RouteSplit | None:
        """The split of the HTTPRoute; None without a route or without a split."""
        return self.gateway.split if self.gateway is not None else None
