"""The kinds of objects that the operator reads or writes, with API version and plural.

The table replaces API discovery: no requests at start, no cache file on a read-only root.
"""

from typing import NamedTuple

from specdec.api import names
from specdec.api.resource_kind import API_VERSION, KIND, PLURAL


class OptionalKind(NamedTuple):
    """The API version that the operator uses for a kind, and its plural."""

    version: str
    plural: str

    @property
    def triple(self) -> tuple[str, str, str]:
        """Group, version and plural."""
        return triple(self.version, self.plural)


def triple(api_version: str, plural: str) -> tuple[str, str, str]:
    """Group (empty for the core), version and plural of a kind."""
    group, _, version = api_version.rpartition("/")
    return group, version, plural


# Kinds of objects that only some resources have. A cluster may lack some of these kinds.
OPTIONAL_KINDS = {
    "HorizontalPodAutoscaler": OptionalKind("autoscaling/v2", "horizontalpodautoscalers"),
    "ScaledObject": OptionalKind("keda.sh/v1alpha1", "scaledobjects"),
    "PodDisruptionBudget": OptionalKind("policy/v1", "poddisruptionbudgets"),
    "HTTPRoute": OptionalKind("gateway.networking.k8s.io/v1", "httproutes"),
    "Ingress": OptionalKind("networking.k8s.io/v1", "ingresses"),
    "NetworkPolicy": OptionalKind("networking.k8s.io/v1", "networkpolicies"),
}

# The children of which the operator keeps copies, and whose changes cause a reconcile. A cluster
# may lack some of these kinds.
WATCHED = (
    ("v1", "ConfigMap"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Service"),
    # The endpoint controller copies the labels of the Service to its EndpointSlices.
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    (names.GROUP_API, names.GROUP_KIND),
    *((optional.version, kind) for kind, optional in OPTIONAL_KINDS.items()),
)

PLURALS = {
    (API_VERSION, KIND): PLURAL,
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("v1", "ConfigMap"): "configmaps",
    # Only the commands of people, such as `specdec check`, read nodes, storage classes and
    # definitions by this table. The operator has no right to read nodes and storage classes.
    # kopf itself lists and watches the definitions.
    ("v1", "Node"): "nodes",
    ("storage.k8s.io/v1", "StorageClass"): "storageclasses",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): "customresourcedefinitions",
    ("v1", "Pod"): "pods",
    ("v1", "Secret"): "secrets",
    ("v1", "Service"): "services",
    ("discovery.k8s.io/v1", "EndpointSlice"): "endpointslices",
    ("apps/v1", "Deployment"): "deployments",
    ("batch/v1", "Job"): "jobs",
    (names.GROUP_API, names.GROUP_KIND): "leaderworkersets",
    ("events.k8s.io/v1", "Event"): "events",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    **{(optional.version, kind): optional.plural for kind, optional in OPTIONAL_KINDS.items()},
}
