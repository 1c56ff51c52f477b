"""The permissions of the operator's account, and its manifests on a real API server."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from cluster import ClusterError, ControlPlane
from cluster.api import Api
from controlplane.operating import ACCOUNT
from specdec.api.kinds import OPTIONAL_KINDS

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "manifests" / "install"

MAY = [
    "list speculativemodels.specdec.dev",
    "patch speculativemodels.specdec.dev/status",
    "create jobs.batch",
    "delete jobs.batch",
    "delete configmaps",
    "patch deployments.apps",
    "delete deployments.apps",
    "delete services",
    "list pods",
    "get pods/log",
    "create events.events.k8s.io",
    "create secrets",
]
MAY_NOT = [
    "get secrets",
    "list secrets",
    "watch secrets",
    "patch secrets",
    "update secrets",
    "delete secrets",
    "update speculativemodels.specdec.dev",
    "patch speculativemodels.specdec.dev",
    "delete speculativemodels.specdec.dev",
    "delete persistentvolumeclaims",
    "create pods",
    "delete pods",
    "create pods/exec",
    "get pods/exec",
    "get pods/proxy",
    "get jobs.batch",
    "list nodes",
    "create clusterroles.rbac.authorization.k8s.io",
    "impersonate serviceaccounts",
    "create serviceaccounts/token",
    "list namespaces",
    "update horizontalpodautoscalers.autoscaling",
    "list ingressclasses.networking.k8s.io",
    "create pods/eviction",
]


@pytest.fixture(scope="module")
def account(installed: ControlPlane) -> Path:
    return installed.service_account(*ACCOUNT)


def attributes(what: str) -> dict[str, str]:
    """Return `verb resource.group/subresource` as the attributes of an access review."""
    verb, _, target = what.partition(" ")
    target, _, subresource = target.partition("/")
    resource, _, group = target.partition(".")
    return {"verb": verb, "group": group, "resource": resource, "subresource": subresource}


def allowed(user: Path, what: str) -> bool:
    """Return the result of `kubectl auth can-i`, without starting a process."""
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = f"/apis/{kind['apiVersion']}/selfsubjectaccessreviews"
    review = {**kind, "spec": {"resourceAttributes": attributes(what)}}
    return bool(Api(user).call("POST", path, review)["status"]["allowed"])


def served(api: Api, what: str) -> bool:
    """Return whether the API server serves the resource; access reviews accept any name."""
    asked = attributes(what)
    root = "/api/v1"
    if asked["group"]:
        group = api.call("GET", f"/apis/{asked['group']}")
        root = f"/apis/{group['preferredVersion']['groupVersion']}"
    name = "/".join(filter(None, (asked["resource"], asked["subresource"])))
    return name in {resource["name"] for resource in api.call("GET", root)["resources"]}


@pytest.mark.parametrize("what", MAY)
def test_operator_may(account: Path, what: str) -> None:
    assert allowed(account, what)


def test_operator_has_only_needed_rights_on_optional_kinds(
    installed: ControlPlane, account: Path
) -> None:
    """List the rules, because `can-i` resolves only kinds that the API server serves."""
    output = installed.kubectl("auth", "can-i", "--list", "--no-headers", user=account)
    rows = (re.split(r"\s{2,}", line.strip()) for line in output.splitlines())
    verbs = {row[0]: set(row[-1].strip("[]").split()) for row in rows}
    for extra in OPTIONAL_KINDS.values():
        name = f"{extra.plural}.{extra.triple[0]}"
        assert verbs[name] == {"list", "watch", "create", "patch", "delete"}, name


@pytest.mark.parametrize("what", MAY_NOT)
def test_operator_may_not(account: Path, what: str) -> None:
    assert not allowed(account, what)


@pytest.mark.parametrize("what", MAY_NOT)
def test_forbidden_action_exists_and_is_allowed_to_an_administrator(
    installed: ControlPlane, what: str
) -> None:
    """Without this check, a misspelt resource would pass as forbidden."""
    assert served(Api(installed.kubeconfig), what)
    assert allowed(installed.kubeconfig, what)


def test_deployment_passes_the_restricted_pod_security(installed: ControlPlane) -> None:
    """Submit the pod itself: for a Deployment, a violation is only a warning."""
    rendered = installed.kubectl("kustomize", str(INSTALL))
    deployments = [o for o in yaml.safe_load_all(rendered) if o["kind"] == "Deployment"]
    template = deployments[0]["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "trial", "namespace": ACCOUNT[0]},
        "spec": template["spec"],
    }
    installed.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    loose = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        installed.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(loose))


def test_overlay_with_images_is_enough(installed: ControlPlane, tmp_path: Path) -> None:
    """Render the overlay of docs/install.md, after which only the container names an image."""
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    (overlay,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", page, re.DOTALL)
    folder = os.path.relpath(INSTALL, tmp_path.resolve())
    changed = re.sub(r"(?m)^resources: .*$", f"resources: [{folder}]", overlay)
    (tmp_path / "kustomization.yaml").write_text(changed)
    rendered = installed.kubectl("kustomize", str(tmp_path))
    deployment = next(o for o in yaml.safe_load_all(rendered) if o["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example.com/specdec/operator:0.1.0"
    assert "ghcr.io" not in json.dumps(deployment)
    assert not [e for e in container["env"] if e["name"].endswith("_IMAGE")]
