"""How clients reach the server, and which clients may."""

from typing import Literal

from pydantic import Field

from specdec.api.source import AuthorityRef
from specdec.api.value import PodShaped, Reference, Resources, Value


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


class TemplateRef(Value):
    """One key of a ConfigMap in the resource's own namespace, with a chat template."""

    name: str
    key: str = "chat_template.jinja"


class OpenAILimits(Value):
    """What the endpoint of one pod accepts: bytes of a body, requests at a time, seconds."""

    body_bytes: int = 4 << 20
    requests_in_flight: int = 256
    timeout_seconds: int = 600


class OpenAI(Value):
    """The OpenAI endpoint in the serving pods.

    Without a `served_model_name` clients use the resource's name. Without a `chat_template` the
    endpoint reads the checkpoint's.
    """

    port: int = 9000
    served_model_name: str | None = None
    chat_template: TemplateRef | None = None
    tool_call_parser: Literal["hermes", "llama3_json"] | None = None
    reasoning_parser: Literal["deepseek_r1", "qwen3"] | None = None
    default_decoding: Literal["Checkpoint", "Greedy"] = "Checkpoint"
    limits: OpenAILimits = OpenAILimits()
    resources: Resources = Field(default_factory=dict)


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
