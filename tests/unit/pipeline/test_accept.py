"""Resources that the accept stage refuses; the message has the field, its value and a remedy."""

from typing import Any

import pytest

from specdec.api.matrix import matrix
from specdec.api.model import Backend, SpeculativeModel
from specdec.backends.facts import Images
from specdec.pipeline.decide import decide
from support.simulated_cluster import World, limits, resource, source

DRAFT = {"source": source("draft")}


def speculation(**fields: Any) -> dict[str, Any]:
    return {"speculation": {"method": "DraftTarget", **fields}}


def target(**fields: Any) -> dict[str, Any]:
    return {"target": {"source": source("target"), "limits": limits(), **fields}}


BAD = [
    ({"runtime": {"backend": "Reference", "version": "9.9.9"}}, "UnsupportedVersion", "9.9.9"),
    (
        {
            "runtime": {"backend": "Reference", "version": "0.18.0"},
            "speculation": {"method": "Lookahead"},
        },
        "UnsupportedMethod",
        "DraftTarget, NGram, None",
    ),
    (
        speculation(maxDraftTokens=4, draftTokens=5, draftTarget={"draft": DRAFT}),
        "InvalidSpec",
        "spec.speculation.draftTokens: draftTokens must not exceed maxDraftTokens",
    ),
    (speculation(), "InvalidSpec", "set draftTarget.draft and maxDraftTokens"),
    (target(source={}), "InvalidSpec", "source of the target must be exactly one"),
    (
        target(source={**source("x"), "huggingFace": {"repo": "a/b"}}),
        "InvalidSpec",
        "exactly one of huggingFace, pvc, s3, gcs, oci and ngc",
    ),
    (
        target(source={"pvc": {"claimName": "c", "path": "a/../../b"}}),
        "InvalidSpec",
        "leaves its claim",
    ),
    ({"storage": {}}, "InvalidSpec", "exactly one of existingClaim and size"),
    ({"storage": {"size": "1Gi", "existingClaim": "x"}}, "InvalidSpec", "exactly one"),
    (target(gpu={"deviceIds": [0, 1]}), "InvalidDevices", "name 1 different ordinals"),
    (target(gpu={"deviceIds": [-1]}), "InvalidDevices", "from 0"),
    (target(dtype="BFloat16"), "InvalidSpec", "dtype of the target is BFloat16"),
]


@pytest.mark.parametrize(("spec", "reason", "text"), BAD)
def test_refuses(spec: dict[str, Any], reason: str, text: str) -> None:
    world = World(resource(**spec))

    decision = world.step()

    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert text in accepted["message"]
    assert decision.apply == ()
    assert decision.requeue_after is None
    assert world.condition("StorageReady")["message"] == "waits for Accepted"
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert world.cr["status"]["phase"] == "Failed"


def test_version_without_a_default_image_needs_an_image() -> None:
    model = SpeculativeModel.parse(resource())

    decision = decide(model, World(resource()).observed(), Images("operator", ""))

    assert decision.conditions[0].reason == "ImageMissing"
    assert "set spec.runtime.image" in decision.conditions[0].message


def test_a_resource_in_an_excluded_namespace_is_not_accepted() -> None:
    body = resource()
    body["metadata"]["namespace"] = "kube-system"
    model = SpeculativeModel.parse(body)
    excluded = Images("operator", "reference", excluded_namespaces=("kube-system",))

    decision = decide(model, World(body).observed(), excluded)

    assert decision.conditions[0].reason == "NamespaceExcluded"
    assert "create the resource in another namespace" in decision.conditions[0].message
    assert not decision.apply


def test_image_and_version_of_the_spec_override_the_defaults() -> None:
    image = "example.com/other:2"
    runtime = {"backend": "Reference", "image": image, "version": "0.18.0"}
    world = World(resource(runtime=runtime))

    world.step()

    plan = world.cr["status"]["plan"]
    assert (plan["image"], plan["version"]) == (image, "0.18.0")


@pytest.mark.parametrize(
    ("runtime", "serving", "reason", "text"),
    [
        ({"backend": "Reference"}, {}, "BelowFixLevel", "set serving.http to HealthOnly"),
        ({"backend": "Reference"}, {"http": "HealthOnly"}, "BelowFixLevel", "trusted clients"),
        ({"backend": "TensorRT"}, {}, "Valid", "26.07-trtllm"),
        (
            {"backend": "TensorRT", "version": "0.18.0"},
            {},
            "BelowFixLevel",
            "Triton 25.03 of this image has publicly known remote faults that are fixed in 26.07: "
            "let only trusted clients reach it, and set serving.http to HealthOnly if all "
            "clients use gRPC, or take the image of runtime.version 1.2.1",
        ),
        (
            {"backend": "TensorRT", "version": "0.18.0", "image": "mirror/triton:26.07-ours"},
            {},
            "Valid",
            "",
        ),
    ],
)
def test_a_server_below_the_fix_level_is_accepted_with_a_warning(
    runtime: dict[str, Any], serving: dict[str, Any], reason: str, text: str
) -> None:
    world = World(resource(runtime=runtime, serving=serving, gpu={"product": "NVIDIA-A10"}))
    world.step()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("True", reason), accepted
    assert text in accepted["message"]
    assert ("publicly known" in accepted["message"]) is (reason == "BelowFixLevel")
    assert world.condition("StorageReady")["message"] != "waits for Accepted"
    if serving:
        assert "HealthOnly" not in accepted["message"]


def test_every_backend_has_a_row_in_the_matrix() -> None:
    assert set(matrix()) == set(Backend)
