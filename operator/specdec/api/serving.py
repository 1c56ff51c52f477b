"""`spec.serving`: the pods of servers."""

from typing import Literal

from pydantic import Field

from specdec.api.defaults import MAX_QUEUE_SIZE
from specdec.api.networking import OpenAI, Tls
from specdec.api.operations import Disruption, ResourceClaim, Rollout, Scaling
from specdec.api.pods import Variable
from specdec.api.sidecars import Sidecar
from specdec.api.value import Affinity, PodShaped, Resources, Value
from specdec.api.volumes import ExtraVolume, ExtraVolumeMount


class Probes(Value):
    """How long a server may take to load its models."""

    startup_budget_seconds: int = 1800


class Drain(Value):
    """How long a stopping server may take to finish the requests that it has accepted."""

    timeout_seconds: int = 120


class Triton(Value):
    """Settings of Triton.

    `queue_delay_microseconds` is how long a call of an engine waits for calls that arrive after
    it. None means the default of the method.
    """

    preprocessing_instances: int = 1
    postprocessing_instances: int = 1
    queue_delay_microseconds: int | None = None
    log_verbose: int = 0


class Serving(Value):
    """The serving pods; `nodesPerReplica` above 1 spreads each replica over a group of pods."""

    replicas: int = 1
    nodes_per_replica: int = 1
    streaming: bool = True
    resources: Resources = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[PodShaped, ...] = ()
    affinity: Affinity = Field(default_factory=dict)
    shared_memory: str = "2Gi"
    probes: Probes = Probes()
    drain: Drain = Drain()
    max_queue_size: int = MAX_QUEUE_SIZE
    triton: Triton | None = None
    extra_volumes: tuple[ExtraVolume, ...] = ()
    extra_volume_mounts: tuple[ExtraVolumeMount, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    topology_spread_constraints: tuple[PodShaped, ...] = ()
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    resource_claims: tuple[ResourceClaim, ...] = ()
    env: tuple[Variable, ...] = ()
    scaling: Scaling | None = None
    disruption: Disruption = Disruption()
    rollout: Rollout = Rollout()
    tls: Tls | None = None
    http: Literal["Open", "HealthOnly"] = "Open"
    open_ai: OpenAI | None = Field(default=None, alias="openAI")

    @property
    def takes_http(self) -> bool:
        """Whether clients are served over HTTP; health is reported over HTTP in any case."""
        return self.http == "Open" and self.tls is None

    @property
    def enough_replicas(self) -> int:
        """The number of available replicas that is enough for the condition Available.

        With an autoscaler this is at most its minimum: further replicas may still be loading.
        """
        if self.scaling is None:
            return self.replicas
        return min(self.replicas, max(1, self.scaling.min_replicas))
