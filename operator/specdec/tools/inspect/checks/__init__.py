"""Judge whether a cluster can run the operator and its resources, for `specdec check`.

`judge` is pure: `reading` reads the facts. What could not be read is a warning, because the
cluster itself may be in order.
"""

import re

from specdec import __version__
from specdec.api import names
from specdec.api.model import KIND
from specdec.tools.inspect.checks import nodes
from specdec.tools.inspect.checks.facts import (
    READING,
    RIGHTS,
    Check,
    Facts,
    Json,
    Result,
    Unread,
    containers,
)

__all__ = ["CRD", "FORMAT", "LEAST_KUBERNETES", "judge"]

FORMAT = "specdec.dev/check/v1"
# The charts require it as kubeVersion; a test compares them.
LEAST_KUBERNETES = (1, 30)
CRD = "speculativemodels.specdec.dev"
_RELEASE = "app.kubernetes.io/version"
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def judge(facts: Facts) -> list[Check]:
    """All checks, in the order in which their problems should be solved."""
    return [
        _server(facts),
        _definition(facts),
        _operator(facts),
        nodes.images(facts),
        _rights(facts),
        nodes.gpus(facts),
        nodes.storage(facts),
    ]


def _server(facts: Facts) -> Check:
    match = _VERSION.match(facts.server)
    least = ".".join(map(str, LEAST_KUBERNETES))
    if match is None:
        message = f"its version {facts.server!r} is unknown"
        return Check("API server", Result.WARNING, message, f"use Kubernetes {least} or later")
    if (int(match[1]), int(match[2])) < LEAST_KUBERNETES:
        message = f"Kubernetes {facts.server} lacks what the CRD's rules need"
        return Check("API server", Result.PROBLEM, message, f"use Kubernetes {least} or later")
    return Check("API server", Result.OK, f"Kubernetes {facts.server}")


def _definition(facts: Facts) -> Check:
    definition = facts.definition
    if definition is None or not facts.served:
        message = f"the API server does not serve the kind {KIND}"
        fix = "kubectl apply --server-side -f crds/speculativemodels.yaml, or install the chart"
        return Check("CRD", Result.PROBLEM, message, fix)
    if isinstance(definition, Unread):
        message = f"it is installed; its schema was not compared: {definition.message}"
        return Check("CRD", Result.WARNING, message, f"ask for the right to get {CRD}")
    if not facts.same_schema:
        message = f"its schema differs from that of specdec {__version__}, which runs this check"
        fix = "apply the CRD of the operator's release, and install specdec of that release"
        return Check("CRD", Result.PROBLEM, message, fix)
    return Check("CRD", Result.OK, f"{CRD} has the schema of specdec {__version__}")


def _operator(facts: Facts) -> Check:
    name = "operator"
    if isinstance(facts.operators, Unread):
        fix = "ask for the right to list Deployments; --operator-namespace selects a namespace"
        return Check(name, Result.WARNING, facts.operators.message, fix)
    if not facts.operators:
        message = f"no Deployment has the label {names.OPERATOR}"
        fix = "install the chart specdec-operator, or kubectl apply -k manifests/install"
        return Check(name, Result.PROBLEM, message, fix)
    watching = [item for item in facts.operators if _watches(item, facts.namespace)]
    if not watching:
        message = f"{_full_names(facts.operators)} does not watch namespace {facts.namespace}"
        return Check(name, Result.PROBLEM, message, "add it to the chart's watchNamespaces")
    available = [item for item in watching if item.get("status", {}).get("availableReplicas")]
    if not available:
        meta = watching[0]["metadata"]
        message = f"Deployment {_full_names(watching)} has no available pod"
        fix = f"kubectl describe deploy {meta['name']} -n {meta['namespace']}, and read its pods"
        return Check(name, Result.PROBLEM, message, fix)
    version = available[0]["metadata"].get("labels", {}).get(_RELEASE, "")
    if version not in ("", __version__):
        message = f"{_full_names(available)} has version {version}, and this specdec {__version__}"
        return Check(name, Result.WARNING, message, f"install specdec {version}")
    return Check(name, Result.OK, f"Deployment {_full_names(available)} is available")


def _watches(deployment: Json, namespace: str) -> bool:
    arguments = [
        argument
        for container in containers(deployment)
        for argument in (*container.get("command", ()), *container.get("args", ()))
    ]
    option = "--namespace="
    places = [item.removeprefix(option) for item in arguments if item.startswith(option)]
    return not places or namespace in places


def _rights(facts: Facts) -> Check:
    if not facts.missing_rights:
        message = f"you have all rights that specdec uses in namespace {facts.namespace}"
        return Check("rights", Result.OK, message)
    listed = "; ".join(
        f"{right.verb} {right.resource}{f'.{right.group}' if right.group else ''} "
        f"(for {RIGHTS[right]})"
        for right in facts.missing_rights
    )
    blind = any(right in facts.missing_rights for right in READING)
    return Check(
        "rights",
        Result.PROBLEM if blind else Result.WARNING,
        f"in namespace {facts.namespace} you may not {listed}",
        "ask for the cluster role view in this namespace; changes and top need the role edit",
    )


def _full_names(objects: list[Json]) -> str:
    metas = [item["metadata"] for item in objects]
    return ", ".join(f"{meta['namespace']}/{meta['name']}" for meta in metas)
