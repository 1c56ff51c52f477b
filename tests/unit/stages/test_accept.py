"""What the accept stage refuses, each with one sentence that names field, value and mend."""

from typing import Any

import pytest

from golden.world import World, limits, resource, source
from specdec.api.matrix import matrix
from specdec.api.model import Backend, SpeculativeModel
from specdec.decide import decide
from specdec.stages.stage import Images

DRAFT = {"source": source("draft")}


def speculation(**fields: Any) -> dict[str, Any]:
    return {"speculation": {"method": "DraftTarget", **fields}}


def target(**fields: Any) -> dict[str, Any]:
    return {"target": {"source": source("target"), "limits": limits(), **fields}}


BAD = [
    (
        {"runtime": {"backend": "PyTorch"}},
        "UnsupportedBackend",
        "PyTorch, which this release does not serve yet: set it to TensorRT or Reference",
    ),
    ({"runtime": {"backend": "Reference", "version": "9.9.9"}}, "UnsupportedVersion", "9.9.9"),
    (
        {
            "runtime": {"backend": "Reference", "version": "0.18.0"},
            "speculation": {"method": "Lookahead"},
        },
        "UnsupportedMethod",
        "DraftTarget, None",
    ),
    (
        speculation(maxDraftTokens=4, draftTokens=5, draftTarget={"draft": DRAFT}),
        "InvalidSpec",
        "draftTokens is 5, above maxDraftTokens 4",
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


@pytest.mark.parametrize(("spec", "reason", "words"), BAD)
def test_refuses(spec: dict[str, Any], reason: str, words: str) -> None:
    world = World(resource(**spec))

    decision = world.step()

    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert words in accepted["message"]
    assert decision.apply == ()
    assert decision.requeue_after is None
    assert world.condition("StorageReady")["message"] == "waits for Accepted"
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert world.cr["status"]["phase"] == "Failed"


def test_asks_for_an_image_where_the_release_has_none() -> None:
    model = SpeculativeModel.parse(resource())

    decision = decide(model, World(resource()).observed(), Images("operator", ""))

    assert decision.conditions[0].reason == "ImageMissing"
    assert "set spec.runtime.image" in decision.conditions[0].message


def test_the_spec_s_image_and_version_win() -> None:
    image = "example.com/other:2"
    runtime = {"backend": "Reference", "image": image, "version": "0.18.0"}
    world = World(resource(runtime=runtime))

    world.step()

    plan = world.cr["status"]["plan"]
    assert (plan["image"], plan["version"]) == (image, "0.18.0")


def test_every_backend_has_a_row_in_the_matrix() -> None:
    assert set(matrix()) == set(Backend)
