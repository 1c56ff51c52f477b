"""The operator reads its image from its pod; the Reference image has the same place and tag."""

from typing import Any

import pytest

from specdec import __version__
from specdec.api import released
from specdec.cluster import ClusterError, Rejected
from specdec.controller.own_image import with_own_image
from specdec.controller.settings import Settings

POD = {
    "spec": {"containers": [{"name": "mesh", "image": "a"}, {"name": "operator", "image": "b:2"}]}
}
IN_A_POD: Any = {"pod_namespace": "system", "pod_name": "operator-1"}


class Pods:
    """Answers the request for the operator's pod."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, ...]] = []

    async def get(self, *target: str) -> Any:
        self.asked.append(target)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def resolved(settings: Settings, answer: Any = None) -> tuple[Settings, Pods]:
    pods: Any = Pods(answer)
    return await with_own_image(settings, pods), pods


async def test_image_of_the_container_is_read_once_from_the_pod() -> None:
    settings, pods = await resolved(Settings(**IN_A_POD), POD)
    assert settings.images.operator == "b:2"
    assert settings.images.reference == "reference:2"
    assert pods.asked == [("v1", "Pod", "system", "operator-1")]


async def test_named_image_needs_no_pod() -> None:
    given = Settings(operator_image="c:3", reference_image="d:4", **IN_A_POD)
    settings, pods = await resolved(given)
    assert (settings.images.operator, settings.images.reference) == ("c:3", "d:4")
    assert pods.asked == []


async def test_outside_of_a_pod_the_images_are_the_released_ones() -> None:
    settings, pods = await resolved(Settings())
    assert settings.images.operator == released.OPERATOR_IMAGE
    assert settings.images.reference == f"{released.REGISTRY}/reference:{__version__}"
    assert pods.asked == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Rejected(403, "Pod system/operator-1", "pods is forbidden"), "allow the operator to get"),
        (None, "there is no pod system/operator-1"),
        ({"spec": {"containers": [{"name": "mesh", "image": "a"}]}}, "with a container operator"),
    ],
)
async def test_unreadable_pod_is_one_sentence_with_its_fix(answer: Any, sentence: str) -> None:
    with pytest.raises(ClusterError, match=sentence) as failed:
        await resolved(Settings(**IN_A_POD), answer)
    assert "SPECDEC_OPERATOR_IMAGE" in str(failed.value)


@pytest.mark.parametrize(
    ("operator", "reference"),
    [
        ("operator", f"reference:{__version__}"),
        (
            "registry.example.com:5000/ml/operator:1.2",
            "registry.example.com:5000/ml/reference:1.2",
        ),
        ("registry.example.com:5000/op", f"registry.example.com:5000/reference:{__version__}"),
        (f"a/b/operator@sha256:{'0' * 64}", f"a/b/reference:{__version__}"),
        (f"a/b/operator:7@sha256:{'0' * 64}", "a/b/reference:7"),
    ],
)
def test_reference_image_is_beside_the_operator(operator: str, reference: str) -> None:
    assert released.reference_beside(operator) == reference
