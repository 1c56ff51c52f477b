"""The admission policy of the operator's account on a real API server.

A stolen account can write what RBAC allows. The policy refuses what the operator never writes:
pods outside the restricted profile, Secrets with tokens, and objects in the system's namespaces.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from chart.helm import INSTALL, RELEASE, Helm, Object, kustomized, single
from chart.touring import USER, define
from cluster import ClusterError, ControlPlane
from cluster.api import MERGE_PATCH, Api
from controlplane.audit import granted
from controlplane.operating import ACCOUNT, until
from support.golden_cases import CASES, generated, templates

pytestmark = pytest.mark.controlplane

KINDS = {"ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
TEAM = "team-a"
TOKEN = {"serviceAccountToken": {"path": "token"}}
# What a change of a pod template makes of it, and a part of the refusal.
POD = "only restricted pods"
CONTAINER = "only restricted containers"
VOLUME = "only pods whose volumes are"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
PODS: dict[str, tuple[Object, str]] = {
    "token": ({"automountServiceAccountToken": True}, POD),
    "default-token": ({"automountServiceAccountToken": None}, POD),
    "network-of-the-node": ({"hostNetwork": True}, POD),
    "processes-of-the-node": ({"hostPID": True}, POD),
    "memory-of-the-node": ({"hostIPC": True}, POD),
    "no-security-context": ({"securityContext": None}, POD),
    "root": ({"securityContext": {"runAsUser": 0}}, POD),
    "sysctl": ({"securityContext": {"sysctls": [{"name": "kernel.shm_rmid", "value": "1"}]}}, POD),
    "path-of-the-node": ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, VOLUME),
    "projected-token": ({"volumes": [{"name": "x", "projected": {"sources": [TOKEN]}}]}, VOLUME),
}
CONTAINERS: dict[str, Object] = {
    "privileged": {"securityContext": {"privileged": True, "allowPrivilegeEscalation": None}},
    "no-restriction": {"securityContext": None},
    "escalation": {"securityContext": {"allowPrivilegeEscalation": True}},
    "capability": {"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}},
    "kept-capabilities": {"securityContext": {"capabilities": {"drop": ["CHOWN"]}}},
    "root-container": {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}},
    "no-seccomp": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "no-apparmor": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    "proc-mount": {"securityContext": {"procMount": "Default"}},
    "probe-of-another-host": {
        "readinessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}
    },
    "hook-to-another-host": {
        "lifecycle": {"preStop": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}
    },
    "port-of-the-node": {"ports": [{"containerPort": 8000, "hostPort": 8000}]},
}
ANNOTATIONS = {
    "cdi.k8s.io/all": "nvidia.com/gpu=all",
    "container.apparmor.security.beta.kubernetes.io/server": "unconfined",
}


@pytest.fixture(scope="module")
def guarded(live: Helm, plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the cluster with the chart's account, permissions and policy, without its pod."""
    define(live, plane)
    objects = [o for o in live.template() if o["kind"] in {*KINDS, *POLICY}]
    text = yaml.safe_dump_all(o for o in objects if "helm.sh/hook" not in str(o["metadata"]))
    plane.kubectl("apply", "-f", "-", stdin=text)
    until(lambda: refusal(plane, token_secret()), "an active policy")
    yield plane
    plane.kubectl("delete", "-f", "-", stdin=text)


def merged(base: Any, change: Any) -> Any:
    """Return `base` with a JSON merge patch (RFC 7386)."""
    if not isinstance(change, dict):
        return change
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def refusal(plane: ControlPlane, body: Object) -> str:
    """Return the API server's refusal to the operator's account; empty if it accepts."""
    argv = ("create", "--dry-run=server", "-f", "-", f"--as={USER}")
    try:
        plane.kubectl(*argv, stdin=json.dumps(body))
    except ClusterError as error:
        return str(error)
    return ""


def token_secret() -> Object:
    labels = {"app.kubernetes.io/managed-by": "specdec"}
    annotations = {"kubernetes.io/service-account.name": "default"}
    meta = {"name": "t", "namespace": TEAM, "labels": labels, "annotations": annotations}
    kind = "kubernetes.io/service-account-token"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind}


def made(kind: str) -> Object:
    """Return an object of a kind that the operator generates, in the namespace of a team."""
    body = next(o for case in CASES for o in generated(case).objects if o["kind"] == kind)
    return moved(body)


def moved(body: Object, namespace: str = TEAM) -> Object:
    body = copy.deepcopy(body)
    body["metadata"]["namespace"] = namespace
    return body


def require_refused(plane: ControlPlane, body: Object, sentence: str) -> None:
    message = refusal(plane, body)
    assert f"ValidatingAdmissionPolicy '{RELEASE}.specdec-system'" in message, message
    assert "the account of specdec-operator writes" in message
    assert sentence in message


def test_everything_that_the_operator_generates_is_accepted(guarded: ControlPlane) -> None:
    """The tests of the operator's process run with the policy too; this covers all features."""
    bodies = [moved(o) for case in CASES for o in generated(case).objects]
    assert {b["kind"] for b in bodies} > {"Job", "Deployment", "LeaderWorkerSet", "Service"}
    # JSON, because kubectl reads a digest such as 12e34 in PyYAML's form as a number.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    argv = ("create", "--dry-run=server", "-o", "name", "-f", "-", f"--as={USER}")
    assert len(guarded.kubectl(*argv, stdin=text).splitlines()) == len(bodies)


@pytest.mark.parametrize("kind", ["Job", "Deployment", "LeaderWorkerSet"])
@pytest.mark.parametrize("name", PODS)
def test_pod_outside_the_restricted_profile_is_refused(
    guarded: ControlPlane, kind: str, name: str
) -> None:
    change, sentence = PODS[name]
    for index in range(len(templates(made(kind)["spec"]))):
        body = made(kind)
        template = templates(body["spec"])[index]
        given = template["spec"].get("volumes", [])
        template["spec"] = merged(template["spec"], change)
        if "volumes" in change:
            template["spec"]["volumes"] = [*given, *change["volumes"]]
        require_refused(guarded, body, sentence)


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize("name", CONTAINERS)
def test_container_outside_the_restricted_profile_is_refused(
    guarded: ControlPlane, group: str, name: str
) -> None:
    body = made("Job")
    spec = body["spec"]["template"]["spec"]
    extra: Object = {"name": "extra", "image": "x", "securityContext": RESTRICTED}
    if group == "initContainers":
        # Otherwise it may have no probes.
        extra["restartPolicy"] = "Always"
    spec[group] = [*spec.get(group, []), extra]
    assert refusal(guarded, body) == ""
    spec[group][-1] = merged(extra, CONTAINERS[name])
    require_refused(guarded, body, CONTAINER)


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_annotation_of_a_pod_is_refused(guarded: ControlPlane, key: str) -> None:
    body = made("Deployment")
    meta = body["spec"]["template"]["metadata"]
    meta["annotations"] = {**meta.get("annotations", {}), key: ANNOTATIONS[key]}
    require_refused(guarded, body, "no pod with CDI devices or without AppArmor")


def test_secret_with_a_token_or_without_our_label_is_refused(guarded: ControlPlane) -> None:
    require_refused(guarded, token_secret(), "only Secrets of type Opaque")
    opaque = merged(token_secret(), {"type": "Opaque"})
    assert refusal(guarded, opaque) == ""
    foreign = merged(opaque, {"metadata": {"labels": None}})
    require_refused(guarded, foreign, "only Secrets of type Opaque")


@pytest.mark.parametrize(
    "change",
    [{"externalIPs": ["203.0.113.9"]}, {"type": "ExternalName", "externalName": "example.com"}],
    ids=["external-addresses", "external-name"],
)
def test_service_of_an_external_address_is_refused(guarded: ControlPlane, change: Object) -> None:
    body = merged(made("Service"), {"spec": change})
    require_refused(guarded, body, "no Service with externalIPs")


@pytest.mark.parametrize("kind", ["ConfigMap", "Job", "NetworkPolicy", "Secret"])
def test_object_in_a_namespace_of_the_system_is_refused(guarded: ControlPlane, kind: str) -> None:
    body = merged(token_secret(), {"type": "Opaque"}) if kind == "Secret" else made(kind)
    require_refused(guarded, moved(body, "kube-system"), "nothing in namespace kube-system")


def test_change_and_deletion_in_a_namespace_of_the_system_are_refused(
    guarded: ControlPlane,
) -> None:
    name = ("configmap", "kube-root-ca.crt", "-n", "kube-system")
    until(lambda: guarded.kubectl("get", *name), "a ConfigMap of the system")
    target = "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt?dryRun=All"
    for request in (("PATCH", target, {"data": {"x": "y"}}, MERGE_PATCH), ("DELETE", target)):
        with pytest.raises(ClusterError, match="writes nothing in namespace kube-system"):
            account(guarded).call(*request)


def test_change_of_a_deployment_to_a_privileged_pod_is_refused(guarded: ControlPlane) -> None:
    # Its owner does not exist, and the garbage collector would delete it.
    without_owner = {"metadata": {"ownerReferences": None}, "spec": {"replicas": 0}}
    body = merged(made("Deployment"), without_owner)
    text = json.dumps(body)
    guarded.kubectl("create", "-f", "-", f"--as={USER}", stdin=text)
    change = {"spec": {"template": {"spec": {"hostPID": True}}}}
    name = body["metadata"]["name"]
    target = f"/apis/apps/v1/namespaces/{TEAM}/deployments/{name}"
    try:
        with pytest.raises(ClusterError, match=POD):
            account(guarded).call("PATCH", target, change, MERGE_PATCH)
    finally:
        guarded.kubectl("delete", f"deployment/{name}", "-n", TEAM)


def account(plane: ControlPlane) -> Api:
    """Return a client with the operator's account: kubectl needs the right to get an object."""
    return Api(plane.service_account(*ACCOUNT))


def test_other_accounts_are_not_affected(guarded: ControlPlane) -> None:
    text = yaml.safe_dump(token_secret())
    guarded.kubectl("create", "--dry-run=server", "-f", "-", stdin=text)


def test_policy_covers_every_kind_that_the_account_writes() -> None:
    """Events and the status of resources go through, so that a refusal can be reported."""
    objects = kustomized(INSTALL)
    (role,) = [
        o for o in objects if o["kind"] == "ClusterRole" and o["metadata"]["name"] == RELEASE
    ]
    written = {
        (right.group, right.resource)
        for right in granted([role])
        if right.verb in ("create", "update", "patch", "delete")
    }
    rules = single(objects, POLICY[0])["spec"]["matchConstraints"]["resourceRules"]
    matched = {(group, name) for r in rules for group in r["apiGroups"] for name in r["resources"]}
    exempt = {
        ("events.k8s.io", "events"),
        ("specdec.dev", "speculativemodels/finalizers"),
        ("specdec.dev", "speculativemodels/status"),
    }
    assert written - matched == exempt
    assert matched <= written
