"""What the chart renders, and that manifests/install is the same."""

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
    one,
    operator,
    pods,
)
from chart.refused import REFUSED
from chart.schemas import require_valid
from chart.sets import SETS, Shows
from chart.touring import roles
from cluster import binaries
from controlplane.audit import granted
from specdec import __version__

# What only one of the two ways to install has a use for.
HELM_ONLY = {"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}


@pytest.fixture(scope="module")
def defaults(helm: Helm) -> list[Object]:
    return helm.template()


def test_helm_finds_no_fault(helm: Helm) -> None:
    told = helm("lint", "--strict", f"--kube-version={binaries.KUBERNETES}", CHART)
    assert "0 chart(s) failed" in told


def test_the_definition_is_a_copy_of_the_single_source() -> None:
    source = (ROOT / "crds" / "speculativemodels.yaml").read_bytes()
    assert (CHART / "files" / "crd.yaml").read_bytes() == source, "make chart copies it"


def test_the_version_is_the_operators() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_every_value_is_explained_and_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    assert set(schema) - {"global"} == set(values)
    rows = re.findall(r"^\| (`.*?) \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(values)
    # Values of one paragraph share its comment.
    unexplained = re.findall(r"(?:^|\n\n)(\w+):", (CHART / "values.yaml").read_text())
    assert unexplained == []


def plain(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, without what differs between Helm and kustomize by nature."""
    found = {}
    for body in objects:
        meta = body["metadata"]
        if body["kind"] == "Namespace" or "helm.sh/hook" in meta.get("annotations", {}):
            continue
        meta["labels"] = {k: v for k, v in meta["labels"].items() if k not in HELM_ONLY}
        meta.get("annotations", {}).pop("helm.sh/resource-policy", None)
        if not meta.get("annotations", True):
            del meta["annotations"]
        found[body["kind"], meta["name"]] = body
    return found


@pytest.mark.parametrize(
    ("folder", "values", "count"),
    [(INSTALL, {}, 9), (NAMESPACED, {"watchNamespaces": ["team-a"]}, 7)],
    ids=["all-namespaces", "one-namespace"],
)
def test_manifests_are_what_the_chart_renders(
    helm: Helm, folder: Path, values: dict[str, Any], count: int
) -> None:
    made, rendered = plain(kustomized(folder)), plain(helm.template(values))
    assert sorted(rendered) == sorted(made)
    assert len(rendered) == count
    for key, body in rendered.items():
        assert body == made[key], key


def test_the_rights_are_as_many_as_the_page_counts(helm: Helm, defaults: list[Object]) -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    (counts,) = re.findall(r"removes\s+each permission in turn, (\d+) in one mode and (\d+)", text)
    named = helm.template({"watchNamespaces": ["team-a"]})
    assert [len(granted(roles(o))) for o in (defaults, named)] == list(map(int, counts))


def test_the_namespace_to_watch_has_one_place_in_the_manifests() -> None:
    lines = (NAMESPACED / "kustomization.yaml").read_text().splitlines()
    assert sum("team-a" in line for line in lines if not line.startswith("#")) == 1


def test_the_operator_is_reached_and_reaches_no_more_than_it_needs(
    defaults: list[Object],
) -> None:
    """In: metrics, from its own namespace. Out: the cluster's DNS, and ports of the API server."""
    spec = one(defaults, "NetworkPolicy")["spec"]
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
def test_values_show_in_what_is_rendered(helm: Helm, defaults: list[Object], name: str) -> None:
    values, shows = SETS[name]
    objects = helm.template(values)
    assert shows(objects)
    require_sound(objects)
    require_valid([o for o in objects if o["kind"] != "CustomResourceDefinition"])
    if name != "defaults":
        assert not shown(shows, defaults), "it shows without the values too"


def shown(shows: Shows, objects: list[Object]) -> bool:
    """Whether it shows; an object or a field that is not there shows nothing."""
    try:
        return shows(objects)
    except (KeyError, ValueError, IndexError):
        return False


def require_sound(objects: list[Object]) -> None:
    """What holds whatever the values are."""
    deployment = one(objects, "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    template = deployment["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= template.items()
    alone = deployment["spec"]["replicas"] == 1
    # Two at once are only allowed to agree on one of them.
    assert alone == (deployment["spec"]["strategy"] == {"type": "Recreate"})
    assert alone == ("SPECDEC_LEASE" not in environment(objects))
    container = operator(objects)
    jobs = next(e for e in container["env"] if e["name"] == "SPECDEC_OPERATOR_IMAGE")
    assert jobs["value"] == container["image"]
    for body in objects:
        assert len(body["metadata"]["name"]) <= 63
        assert body["metadata"]["labels"]["app.kubernetes.io/part-of"] == "specdec"
    for pod in pods(objects):
        require_restricted(pod)
    for body in objects:
        if body["kind"] in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
            found = selected(body["spec"])
            assert found == selector, body["kind"]


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
def test_the_schema_refuses_with_the_fields_name(helm: Helm, name: str) -> None:
    values, field = REFUSED[name]
    with pytest.raises(HelmError, match="don't meet the specifications of the schema") as refused:
        helm.template(values)
    assert field in str(refused.value).replace(".", "/")


def test_the_documented_values_and_names_are_known(helm: Helm) -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    (values,) = re.findall(r"```yaml\n# values.yaml\n(.*?)```", text, re.DOTALL)
    assert operator(helm.template(yaml.safe_load(values)))["image"].startswith("registry.")
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    table = text.split("| Value | What it does |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    fields = [field for row in rows for field in re.findall(r"`([\w.]+)`", row)]
    assert len(fields) == 13
    for field in fields:
        found = known
        for part in field.split("."):
            assert part in found, field
            found = found[part]
