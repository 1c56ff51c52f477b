"""`specdec plan` gives the verdict of a real API server on randomly changed resources.

tests/controlplane/test_crd.py compares both verdicts on every case of the tables.
"""

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import ControlPlane
from controlplane.offline_verdict import Causes, offline_causes
from controlplane.specm import Object, RefusedError, Resources
from specdec.api.model import API_VERSION, KIND
from specdec.tools.dry_run.admission import admit
from specdec.tools.dry_run.admission.definition import definition
from specdec.tools.dry_run.yaml_reader import documents
from support.crd_cases import good_resource
from support.crd_mutations import mutations

pytestmark = pytest.mark.controlplane

METADATA: list[tuple[str, Any]] = [
    ("name", "a.b"),
    ("name", "-"),
    ("name", "A" * 300),
    ("labels", {"a b": "c", "d": "e f", "G/h": "", "/i": "", "j/": "", "k/l/m": ""}),
    ("labels", {"a" * 64: "b" * 64}),
    ("labels", {"a": None}),
    ("annotations", {"A.b/C": "", "d e": ""}),
    ("annotations", {"a": "b" * 300_000}),
    ("finalizers", ["a b"]),
    ("ownerReferences", [{"name": "a"}]),
    ("creationTimestamp", None),
    ("label", {}),
]
UNREADABLE: list[tuple[str, Any]] = [
    ("labels", {"a": 1}),
    ("labels", ["a"]),
    ("annotations", {"a": True}),
    ("finalizers", "a"),
    ("uid", 5),
    ("creationTimestamp", "today"),
]


@pytest.fixture(scope="module")
def resources(bare: ControlPlane) -> Iterator[Resources]:
    name = f"offline-{secrets.token_hex(4)}"
    bare.kubectl("create", "namespace", name)
    resources = Resources(bare.kubeconfig, name)
    yield resources
    resources.close()
    bare.kubectl("delete", "namespace", name, "--wait=false")


def server_verdict(resources: Resources, body: Object) -> tuple[Causes, Object | None]:
    """Return the causes of a refusal, or the spec that the server would store."""
    try:
        return [], resources.create(body, dry_run=True)["spec"]
    except RefusedError as refused:
        # For a wrong type, the server also reports that it cannot read the number of replicas.
        return [cause for cause in refused.causes if "accessor error" not in cause[1]], None


@pytest.mark.parametrize("seed", range(4))
def test_verdict_on_random_changes_equals_that_of_the_server(
    seed: int, resources: Resources
) -> None:
    verdicts = Counter[bool]()
    for case in mutations(definition().schema, 100, seed):
        body = case.resource()
        causes, stored = server_verdict(resources, body)
        offline = admit(body)
        assert sorted(offline_causes(offline, causes)) == sorted(causes), json.dumps(body)
        if stored is not None:
            assert offline.body["spec"] == stored
        verdicts[stored is None] += 1
    assert min(verdicts[False], verdicts[True]) >= 10, verdicts


@pytest.mark.parametrize(("key", "value"), METADATA, ids=lambda value: str(value)[:30])
def test_verdict_on_metadata_equals_that_of_the_server(
    key: str, value: Any, resources: Resources
) -> None:
    body = good_resource("none-minimal")
    body["metadata"][key] = value
    causes, _ = server_verdict(resources, body)
    assert sorted(offline_causes(admit(body), causes)) == sorted(causes)


@pytest.mark.parametrize(("key", "value"), UNREADABLE, ids=lambda value: str(value)[:30])
def test_metadata_that_the_server_cannot_read_is_refused(
    key: str, value: Any, resources: Resources
) -> None:
    body = good_resource("none-minimal")
    body["metadata"][key] = value
    assert server_verdict(resources, body)[0]
    assert admit(body).problems


TEXTS = ("1e9", "2.0", ".5", "0.19", "1_000", "0o17", "017", "09", "0x1f", "12:30", "2026-01-02")
OTHER_TEXTS = ("y", "n", "Yes", "off", "TRUE", "~", "1Gi", "'1'", "0.19.0", "1e30")


def test_plain_text_is_read_as_kubectl_reads_it(bare: ControlPlane) -> None:
    """With `--dry-run=client`, kubectl prints the object that it would send."""
    fields = "".join(f"  f{i}: {text}\n" for i, text in enumerate([*TEXTS, *OTHER_TEXTS]))
    head = f"apiVersion: {API_VERSION}\nkind: {KIND}\nmetadata: {{name: plain}}\n"
    document = f"{head}spec:\n{fields}"
    options = ("--dry-run=client", "--validate=false", "-o", "json", "-f", "-")
    sent = json.loads(bare.kubectl("create", *options, stdin=document))["spec"]
    read = documents(document)[0]["spec"]
    assert {key: (type(value), value) for key, value in read.items()} == {
        key: (type(value), value) for key, value in sent.items()
    }
