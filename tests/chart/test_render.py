"""Checks the objects that the chart renders, and that manifests/install equals them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.helm import (
    CHART,
    INSTALL,
    NAMESPACED,
    ROOT,
    Helm,
    HelmError,
    Object,
    environment,
    kustomized,
    operator,
    pods,
    single,
)
from chart.refused import REFUSED
from chart.schemas import require_valid
from chart.sets import SETS
from chart.shown import Shows
from cluster import binaries
from specdec import __version__
from specdec.controller import own_image

# Labels that only Helm sets.
HELM_ONLY = {"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}


@pytest.fixture(scope="module")
def defaults(helm: Helm) -> list[Object]:
    return helm.template()


def test_operator_chart_passes_lint(helm: Helm) -> None:
    output = helm("lint", "--strict", f"--kube-version={binaries.KUBERNETES}", CHART)
    assert "0 chart(s) failed" in output


def test_definition_equals_its_source() -> None:
    source = (ROOT / "crds" / "speculativemodels.yaml").read_bytes()
    assert (CHART / "files" / "crd.yaml").read_bytes() == source, "make chart copies it"


def test_chart_version_equals_the_operator_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_every_value_is_documented_and_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    assert set(schema) == set(values)
    rows = re.findall(r"^\| `(\w+)", (CHART / "README.md").read_text(), re.MULTILINE)
    assert set(rows) == set(values)
    # Values of the same paragraph share a comment.
    unexplained = re.findall(r"(?:^|\n\n)(\w+):", (CHART / "values.yaml").read_text())
    assert unexplained == []


def plain(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Return objects by kind and name, without the fields that only Helm sets."""
    result = {}
    for body in objects:
        meta = body["metadata"]
        if body["kind"] == "Namespace" or "helm.sh/hook" in meta.get("annotations", {}):
            continue
        meta["labels"] = {k: v for k, v in meta["labels"].items() if k not in HELM_ONLY}
        meta.get("annotations", {}).pop("helm.sh/resource-policy", None)
        if not meta.get("annotations", True):
            del meta["annotations"]
        result[body["kind"], meta["name"]] = body
    return result


@pytest.mark.parametrize(
    ("folder", "values", "count"),
    [(INSTALL, {}, 13), (NAMESPACED, {"watchNamespaces": ["team-a"]}, 11)],
    ids=["all-namespaces", "one-namespace"],
)
def test_manifests_equal_the_rendered_chart(
    helm: Helm, folder: Path, values: dict[str, Any], count: int
) -> None:
    made, rendered = plain(kustomized(folder)), plain(helm.template(values))
    assert sorted(rendered) == sorted(made)
    assert len(rendered) == count
    for key, body in rendered.items():
        assert body == made[key], key


def test_manifests_set_the_watched_namespace_once() -> None:
    lines = (NAMESPACED / "kustomization.yaml").read_text().splitlines()
    assert sum("team-a" in line for line in lines if not line.startswith("#")) == 1


def test_network_policy_allows_only_metrics_dns_and_the_api_server(
    defaults: list[Object],
) -> None:
    """Ingress: metrics from the same namespace. Egress: cluster DNS, and API server ports."""
    spec = single(defaults, "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"port": "metrics"}], "from": [{"podSelector": {}}]}]
    dns, server = spec["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    pods, node = dns["to"]
    assert pods["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "kube-system"
    }
    assert pods["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
    assert node == {"ipBlock": {"cidr": "169.254.20.10/32"}}
    assert server == {"ports": [{"port": 443}, {"port": 6443}]}


@pytest.mark.parametrize("name", SETS)
def test_values_change_the_rendered_objects(helm: Helm, defaults: list[Object], name: str) -> None:
    values, shows = SETS[name]
    objects = helm.template(values)
    assert shows(objects)
    require_sound(objects)
    require_valid([o for o in objects if o["kind"] != "CustomResourceDefinition"])
    if name != "defaults":
        assert not shown(shows, defaults), "it shows without the values too"


def shown(shows: Shows, objects: list[Object]) -> bool:
    """Return whether the values have an effect; a missing object or field counts as no effect."""
    try:
        return shows(objects)
    except (KeyError, ValueError, IndexError):
        return False


def require_sound(objects: list[Object]) -> None:
    """Check rules that must be met with all values."""
    deployment = single(objects, "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    template = deployment["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= template.items()
    alone = deployment["spec"]["replicas"] == 1
    # Only leader election allows two replicas at the same time.
    assert alone == (deployment["spec"]["strategy"] == {"type": "Recreate"})
    assert alone == ("SPECDEC_LEASE" not in environment(objects))
    container = operator(objects)
    assert container["name"] == own_image.CONTAINER
    fields = {e["name"]: e["valueFrom"] for e in container["env"] if "valueFrom" in e}
    assert fields == {
        "SPECDEC_POD_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "SPECDEC_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
    }
    for body in objects:
        assert len(body["metadata"]["name"]) <= 63
        assert body["metadata"]["labels"]["app.kubernetes.io/part-of"] == "specdec"
    for pod in pods(objects):
        require_restricted(pod)
    for body in objects:
        if body["kind"] in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
            assert selected(body["spec"]) == selector, body["kind"]


def selected(spec: Any) -> Any:
    chosen = spec.get("podSelector") or spec["selector"]
    return chosen.get("matchLabels", chosen)


def require_restricted(pod: Object) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", REFUSED)
def test_schema_error_names_the_field(helm: Helm, name: str) -> None:
    values, field = REFUSED[name]
    with pytest.raises(HelmError, match="don't meet the specifications of the schema") as refused:
        helm.template(values)
    assert field in str(refused.value).replace(".", "/")
