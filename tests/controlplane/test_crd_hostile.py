"""Harmful text in a field: the API server refuses the field, or stores the text unchanged."""

import copy
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import ControlPlane
from controlplane.specm import Object, RefusedError, Resources
from support.crd_cases import good_resource

pytestmark = pytest.mark.controlplane

SOURCE = "spec.target.source"
HARMFUL = {
    "line": "\nx",
    "nul": "\0",
    "escape": "\x1b[2J",
    "tab": "\t",
    "long": "a" * 10240,
}
ODD = {
    "double": '"; reboot; "',
    "single": "'x'",
    "command": "$(reboot)",
    "variable": "${HOME}",
    "tick": "`reboot`",
    "climb": "/../x",
    "backslash": "\\x",
}
# Fields that refuse all of these texts, each with a valid value.
STRICT = {
    "spec.runtime.version": "0.19.0",
    "spec.runtime.image": "registry.example.com/server:1",
    "spec.gpu.product": "NVIDIA-L4",
    "spec.gpu.computeCapability": "8.9",
    "spec.target.dtype": "Auto",
    "spec.target.quantization.calibration.dataset": "/models/prompts",
    "spec.target.engine.plugins.gemm": "fp8",
    "spec.target.engine.plugins.gptAttention": "auto",
    "spec.target.engine.plugins.lowLatencyGemm": "fp8",
    "spec.storage.storageClassName": "fast",
    "spec.storage.size": "1Gi",
    "spec.serving.sharedMemory": "1Gi",
    "spec.build.sharedMemory": "1Gi",
    f"{SOURCE}.huggingFace.repo": "example/big",
    f"{SOURCE}.huggingFace.revision": "main",
    f"{SOURCE}.huggingFace.tokenSecretRef.name": "hub",
    f"{SOURCE}.huggingFace.tokenSecretRef.key": "token",
    f"{SOURCE}.pvc.claimName": "weights",
    f"{SOURCE}.s3.uri": "s3://models/big",
    f"{SOURCE}.s3.region": "eu-central-1",
    f"{SOURCE}.s3.credentialsSecretRef.name": "store",
    f"{SOURCE}.gcs.uri": "gs://models/big",
    f"{SOURCE}.gcs.credentialsSecretRef.name": "store",
    f"{SOURCE}.oci.reference": "registry.example.com/models/big:1",
    f"{SOURCE}.oci.pullSecretRef.name": "registry",
    f"{SOURCE}.ngc.resource": "nvidia/nemo/big:1",
    f"{SOURCE}.ngc.authSecretRef.key": "key",
}
FREE = {
    "spec.runtime.parameters.max_attention_window_size": "4",
    "spec.target.engine.extraArgs.opt_num_tokens": "64",
    f"{SOURCE}.pvc.path": "models/big",
}
NEEDED: dict[str, Object] = {
    "huggingFace": {"repo": "example/big"},
    "pvc": {"claimName": "weights", "path": "big"},
    "s3": {"uri": "s3://models/big"},
    "gcs": {"uri": "gs://models/big"},
    "oci": {"reference": "registry.example.com/models/big:1"},
    "ngc": {"resource": "nvidia/nemo/big:1"},
}
MAPS = ("spec.target.engine.extraArgs", "spec.runtime.parameters")


@pytest.fixture(scope="module")
def resources(bare: ControlPlane) -> Iterator[Resources]:
    name = f"hostile-{secrets.token_hex(4)}"
    bare.kubectl("create", "namespace", name)
    resources = Resources(bare.kubeconfig, name)
    yield resources
    resources.close()


def with_text(field: str, text: str) -> Object:
    """Return the resource that sets every field, with `text` in this field."""
    body: Object = good_resource("everything")
    # These node selectors would have to name the same product as `gpu.product`.
    del body["spec"]["build"]["nodeSelector"], body["spec"]["serving"]["nodeSelector"]
    *parents, last = field.split(".")
    if field.startswith(f"{SOURCE}."):
        kind = field.split(".")[3]
        body["spec"]["target"]["source"] = {kind: copy.deepcopy(NEEDED[kind])}
    place = body
    for part in parents:
        place = place.setdefault(part, {"name": "secret"} if part.endswith("Ref") else {})
    place[last] = text
    return body


def inside(body: Object, field: str) -> Any:
    """Return the value of a field."""
    place: Any = body
    for part in field.split("."):
        place = place[part]
    return place


def refusals(resources: Resources, body: Object) -> set[str]:
    """Return the fields that the server refuses; empty when it accepts the resource."""
    try:
        resources.create(body, dry_run=True)
    except RefusedError as refused:
        return {field for field, _ in refused.causes}
    return set()


@pytest.mark.parametrize(("field", "value"), (STRICT | FREE).items())
def test_unchanged_text_is_accepted(field: str, value: str, resources: Resources) -> None:
    assert refusals(resources, with_text(field, value)) == set()


@pytest.mark.parametrize(("field", "value"), STRICT.items())
@pytest.mark.parametrize("text", (HARMFUL | ODD).values(), ids=(HARMFUL | ODD).keys())
def test_strict_text_is_refused_at_its_field(
    field: str, value: str, text: str, resources: Resources
) -> None:
    assert refusals(resources, with_text(field, value + text)) == {field}


@pytest.mark.parametrize("text", (HARMFUL | ODD).values(), ids=(HARMFUL | ODD).keys())
def test_invalid_name_is_refused(text: str, resources: Resources) -> None:
    assert refusals(resources, with_text("metadata.name", "everything" + text)) >= {
        "metadata.name"
    }


@pytest.mark.parametrize(("field", "value"), FREE.items())
@pytest.mark.parametrize("text", HARMFUL.values(), ids=HARMFUL.keys())
def test_long_or_multiline_free_text_is_refused(
    field: str, value: str, text: str, resources: Resources
) -> None:
    fields = refusals(resources, with_text(field, value + text))
    assert len(fields) == 1
    assert field.startswith(fields.pop())


@pytest.mark.parametrize(("field", "value"), FREE.items())
@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_free_text_is_stored_unchanged_or_refused(
    field: str, value: str, text: str, resources: Resources
) -> None:
    body = with_text(field, value + text)
    if text == ODD["climb"] and field.endswith("path"):
        assert refusals(resources, body) == {field}
        return
    assert inside(resources.create(body, dry_run=True), field) == value + text


@pytest.mark.parametrize("field", MAPS)
@pytest.mark.parametrize("text", (HARMFUL | ODD).values(), ids=(HARMFUL | ODD).keys())
def test_invalid_name_of_a_flag_or_parameter_is_refused(
    field: str, text: str, resources: Resources
) -> None:
    body = with_text(f"{field}.multi_block_mode", "true")
    place = inside(body, field)
    place["multi_block_mode" + text] = place.pop("multi_block_mode")
    assert refusals(resources, body) == {field}
