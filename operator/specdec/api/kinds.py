"""The kinds of objects that the operator touches, and by what name the API server knows them.

A table instead of discovery: no requests at start, no cache file on a read-only root.
"""

from typing import NamedTuple

from specdec.api import names
from specdec.api.model import API_VERSION, KIND, PLURAL


class Extra(NamedTuple):
    """The API version that the operator uses for a kind, and its plural."""

    version: str
    plural: str

    @property
    def watched(self) -> tuple[str, str, str]:
        """Group, version and plural."""
        return triple(self.version, self.plural)


def triple(api_version: str, plural: str) -> tuple[str, str, str]:
    """Group (empty for the core), version and plural of a kind."""
    group, _, version = api_version.rpartition("/")
    return group, version, plural


# What only some resources have beside servers and Services; a cluster need not know all of them.
EXTRAS = {
    "HorizontalPodAutoscaler": Extra("autoscaling/v2", "horizontalpodautoscalers"),
    "ScaledObject": Extra("keda.sh/v1alpha1", "scaledobjects"),
    "PodDisruptionBudget": Extra("policy/v1", "poddisruptionbudgets"),
    "HTTPRoute": Extra("gateway.networking.k8s.io/v1", "httproutes"),
    "Ingress": Extra("networking.k8s.io/v1", "ingresses"),
    "NetworkPolicy": Extra("networking.k8s.io/v1", "networkpolicies"),
}

# The children whose events ask for a reconcile. A cluster need not have these all: kopf waits for
# the definitions that are missing.
WATCHED = (
    ("v1", "ConfigMap"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Service"),
    # Their controller gives them the labels of their Service.
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    (names.GROUP_API, names.GROUP_KIND),
    *((extra.version, kind) for kind, extra in EXTRAS.items()),
)

PLURALS = {
    (API_VERSION, KIND): PLURAL,
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Pod"): "pods",
    ("v1", "Secret"): "secrets",
    ("v1", "Service"): "services",
    ("discovery.k8s.io/v1", "EndpointSlice"): "endpointslices",
    ("apps/v1", "Deployment"): "deployments",
    ("batch/v1", "Job"): "jobs",
    (names.GROUP_API, names.GROUP_KIND): "leaderworkersets",
    ("events.k8s.io/v1", "Event"): "events",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    **{(extra.version, kind): extra.plural for kind, extra in EXTRAS.items()},
}
