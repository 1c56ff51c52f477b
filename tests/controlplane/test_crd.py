"""The CRD on a real API server: accepted and refused resources, and defaults."""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cluster import ControlPlane
from controlplane.offline_verdict import offline_causes
from controlplane.specm import Object, RefusedError, Resources
from specdec.api import model
from specdec.api.jobs import Build
from specdec.api.methods.draft_target import DraftTarget
from specdec.api.methods.eagle import Eagle
from specdec.api.methods.lookahead import Lookahead
from specdec.api.methods.medusa import Medusa
from specdec.api.methods.re_drafter import ReDrafter
from specdec.api.serving import Serving
from specdec.tools.dry_run.admission import admit
from support import crd_cases
from support.crd_cases import Case, good_resource

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
GOOD = crd_cases.good()
BAD = crd_cases.bad()
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
STATUS = crd_cases.TABLES / "status.yaml"
SERVING_BLOCKS = ("probes", "drain", "disruption", "rollout")
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(bare: ControlPlane) -> Kubectl:
    return bare.kubectl


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"crd-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def resources(bare: ControlPlane, namespace: str) -> Iterator[Resources]:
    resources = Resources(bare.kubeconfig, namespace)
    yield resources
    resources.clear()
    resources.close()


def parsed(body: Object) -> model.Spec:
    """Return the typed spec of a resource, which may be stored or not."""
    metadata = {"namespace": "default", "uid": "0", **body["metadata"]}
    return model.SpeculativeModel.parse({**body, "metadata": metadata}).spec


def test_good_and_bad_cases_are_loaded() -> None:
    assert len(GOOD) >= 60
    assert len(BAD) >= 200


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_good_resource_is_accepted_and_parsed(case: Case, resources: Resources) -> None:
    body = case.resource()
    resources.create(body, dry_run=True)
    assert resources.names() == set()
    resources.create(body)
    stored = resources.get(body["metadata"]["name"])
    # Server and operator have the same defaults, so both resources have the same typed spec.
    assert parsed(stored) == parsed(body)
    offline = admit(body)
    assert (offline.problems, offline.body["spec"]) == ((), stored["spec"])


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_bad_resource_is_refused_by_the_intended_rule(case: Case, resources: Resources) -> None:
    body = case.resource()
    send = resources.create
    if case.after:
        resources.create(good_resource(case.after))
        send = resources.replace
    offline = admit(body, admit(good_resource(case.after)).body if case.after else None)
    before = resources.names()
    for dry_run in (True, False):
        with pytest.raises(RefusedError) as refused:
            send(body, dry_run=dry_run)
        causes = refused.value.causes
        assert all(case.message in message for _, message in causes), causes
        if "unknown field" not in case.message:
            assert {field for field, _ in causes} == {case.field}
        assert sorted(offline_causes(offline, causes)) == sorted(causes)
    assert resources.names() == before


def test_server_sets_the_defaults_of_the_model(resources: Resources) -> None:
    body = good_resource("tensorrt-draft-target")
    part: Object = {
        "quantization": {"calibration": {}},
        "parallelism": {},
        "gpu": {},
        "limits": {},
        "engine": {"plugins": {}},
        "kvCache": {},
    }
    block = body["spec"]["speculation"]["draftTarget"]
    for place, more in (
        (body["spec"]["target"], part),
        (block["draft"], part),
        (
            body["spec"],
            {"build": {}, "checks": {}, "serving": {key: {} for key in SERVING_BLOCKS}},
        ),
    ):
        place.update(more)
    spec = resources.create(body)["spec"]
    # An open limit follows from other values, so the API server sets none.
    filled = {**scalars(model.ModelSpec), "limits": {}}
    assert {**spec["target"], "source": {}} == {**filled, "source": {}}
    stored = spec["speculation"]["draftTarget"]
    assert {**block["draft"], "source": {}, **filled} == {
        **stored["draft"],
        "source": {},
    }
    assert {**stored, "draft": {}} == {**scalars(DraftTarget), "draft": {}}
    assert spec["build"] == scalars(Build)
    assert spec["checks"] == scalars(model.Checks)
    assert spec["serving"] == scalars(Serving)
    assert spec["suspend"] is False
    assert spec["runtime"] == {"backend": "TensorRT", **scalars(model.Runtime)}
    assert spec["storage"] == {"size": "10Gi"}


def test_server_leaves_limits_beside_a_set_one_open(resources: Resources) -> None:
    """On PyTorch each of them follows from the checkpoint and the memory of the GPU (ADR 0174)."""
    body = good_resource("pytorch-ngram")
    body["spec"]["target"]["limits"] = {"maxSeqLen": 900}

    stored = resources.create(body)

    assert stored["spec"]["target"]["limits"] == {"maxSeqLen": 900}
    limits = model.SpeculativeModel.parse(stored).spec.target.limits
    assert limits.model_fields_set == {"max_seq_len"}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("eagle-minimal", "eagle"),
        ("medusa-minimal", "medusa"),
        ("redrafter-minimal", "reDrafter"),
        ("lookahead-minimal", "lookahead"),
    ],
)
def test_server_sets_the_defaults_of_a_method(name: str, field: str, resources: Resources) -> None:
    body = good_resource(name)
    block = resources.create(body)["spec"]["speculation"][field]
    kinds = {
        "eagle": Eagle,
        "medusa": Medusa,
        "reDrafter": ReDrafter,
        "lookahead": Lookahead,
    }
    defaults = scalars(kinds[field])
    assert {key: block[key] for key in defaults} == defaults
    assert block.keys() == defaults.keys() | body["spec"]["speculation"][field].keys()


def scalars(kind: type[model.Value]) -> Object:
    """Return the scalar defaults of a block and of its inner blocks, as the server stores them."""
    defaults: Object = {}
    for field in kind.model_fields.values():
        if field.is_required():
            continue
        value = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(value, model.Value):
            defaults[str(field.alias)] = scalars(type(value))
        elif value not in (None, (), {}):
            defaults[str(field.alias)] = value
    return defaults


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("storage-class", {"storage": {"size": "2Ti"}}),
        ("draft-target-minimal", {"speculation": {"draftTokens": 4}}),
        ("draft-target-minimal", {"target": {"limits": {"maxSeqLen": 1500}}}),
        ("existing-claim", {"suspend": True}),
        ("none-minimal", {"runtime": {"image": "registry.example.com/server:2"}}),
    ],
)
def test_mutable_field_can_change(
    name: str, change: Object, kubectl: Kubectl, namespace: str, resources: Resources
) -> None:
    resources.create(good_resource(name))
    patch = ("patch", "specm", name, "-n", namespace, "--type=merge", "-p")
    outputs = [kubectl(*patch, json.dumps({"spec": change})) for _ in range(2)]
    assert ["no change" in output for output in outputs] == [False, True]


def test_samples_are_accepted_and_second_apply_changes_nothing(
    kubectl: Kubectl, namespace: str, resources: Resources
) -> None:
    assert {file.stem for file in SAMPLES} >= {
        "reference-pair",
        "reference-baseline",
        "reference-draft-target",
        "reference-lookahead",
        "reference-openai",
        "reference-tls",
        "tensorrt-405b-two-nodes",
        "tensorrt-baseline",
        "tensorrt-draft-target-dedicated",
        "tensorrt-draft-target-fast-logits",
        "tensorrt-draft-target-shared",
        "tensorrt-eagle",
        "tensorrt-fp8-one-gpu",
        "tensorrt-lookahead",
        "tensorrt-medusa",
        "tensorrt-redrafter",
        "tensorrt-two-servers",
    }
    every = [word for file in SAMPLES for word in ("-f", str(file))]
    first = kubectl("apply", "-n", namespace, *every).splitlines()
    again = kubectl("apply", "-n", namespace, *every).splitlines()
    assert len(first) >= len(SAMPLES)
    assert [line.rsplit(" ", 1)[1] for line in first] == ["created"] * len(first)
    assert [line.rsplit(" ", 1)[1] for line in again] == ["unchanged"] * len(first)


def test_scale_writes_replicas_without_serving_in_the_spec(
    kubectl: Kubectl, namespace: str, resources: Resources
) -> None:
    resources.create(good_resource("none-minimal"))
    kubectl("scale", "specm/none-minimal", "-n", namespace, "--replicas=3")
    assert resources.get("none-minimal")["spec"]["serving"]["replicas"] == 3


def test_status_stores_every_field_of_the_operator(
    kubectl: Kubectl, namespace: str, resources: Resources
) -> None:
    made = resources.create(good_resource("none-minimal"))
    status: Object = yaml.safe_load(STATUS.read_text())
    patch = json.dumps({"status": status, "spec": {"suspend": True}})
    where = ("none-minimal", "-n", namespace)
    kubectl("patch", "specm", *where, "--subresource=status", "--type=merge", "-p", patch)
    stored = resources.get("none-minimal")
    assert stored["status"] == status
    assert stored["spec"] == made["spec"]
    assert stored["metadata"]["generation"] == made["metadata"]["generation"]
    header, row = kubectl("get", "specm", *where).splitlines()
    assert header.split()[:5] == ["NAME", "METHOD", "BACKEND", "READY", "REASON"]
    assert header.split()[5:] == ["ACCEPT", "SPEED", "AGE"]
    assert row.split()[:5] == ["none-minimal", "None", "Reference", "2/3", "Serving"]
    assert row.split()[5:7] == ["71%", "1.80x"]
    scale = f"/apis/{model.API_VERSION}/namespaces/{namespace}/{model.PLURAL}/none-minimal/scale"
    assert json.loads(kubectl("get", "--raw", scale))["status"] == {
        "replicas": 3,
        "selector": status["selector"],
    }


def test_kubectl_explain_and_short_names_work(
    kubectl: Kubectl, namespace: str, resources: Resources
) -> None:
    text = kubectl("explain", "specm.spec.speculation.draftTarget.draft.limits.maxSeqLen")
    assert "Tokens of a prompt and its continuation together." in text
    assert "No resources found" not in kubectl("explain", "specm", "--recursive")
    resources.create(GOOD[0].resource())
    assert GOOD[0].name in kubectl("get", "specdec", "-n", namespace)


def test_resource_of_the_readme_is_accepted(resources: Resources) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```yaml\n")[1:]]
    shown = [body for body in map(yaml.safe_load, blocks) if body.get("kind") == model.KIND]
    assert shown
    for body in shown:
        resources.create(body, dry_run=True)
