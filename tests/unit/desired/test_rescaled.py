"""Changes of live servers during a build of another revision: scaling, renewed certificates."""

import copy
from typing import Any

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import rescaled, serving
from specdec.desired.pod import Volume
from specdec.triton.layout import Launch, Mode
from support.simulated_cluster import resource

VOLUME = Volume("pair-models", "uid", single_node=False)
REPOSITORY = "f" * 64


def model(**spec: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(**spec))


def live() -> dict[str, Any]:
    """Return a Deployment with the fields that the API server adds."""
    revision = serving.Revision(REPOSITORY, "image", 5, Launch(Mode.ORCHESTRATOR, 6))
    body = serving.deployment(model(), revision, VOLUME, 1)
    body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "4"
    body["spec"]["template"]["metadata"]["creationTimestamp"] = None
    return body


def test_scaling_leaves_the_pod_template_as_it_is() -> None:
    before = live()
    # An operator of another release has written another command.
    before["spec"]["template"]["spec"]["containers"][0]["command"] = ["mpirun", "older"]
    template = copy.deepcopy(before["spec"]["template"])
    changed = model(serving={"resources": {"limits": {"memory": "1Gi"}}})

    body = rescaled.deployment(changed, "target", before, 3, "")

    assert body["spec"]["replicas"] == 3
    del template["metadata"]["creationTimestamp"]
    assert body["spec"]["template"] == template
    assert body["spec"]["strategy"] == before["spec"]["strategy"]
    assert body["metadata"]["annotations"] == {names.REPOSITORY: REPOSITORY}
    assert before == live() | {"spec": before["spec"]}, "the live object is not changed"


def test_a_renewed_certificate_changes_one_annotation_of_the_template() -> None:
    before = live()
    body = rescaled.deployment(model(), "target", before, 1, "a" * 16)
    metadata = body["spec"]["template"]["metadata"]
    expected = before["spec"]["template"]["metadata"]
    assert metadata["annotations"] == expected["annotations"] | {names.CERTIFICATE: "a" * 16}
    assert names.CERTIFICATE not in expected["annotations"]
    assert body["spec"]["template"]["spec"] == before["spec"]["template"]["spec"]


def test_a_server_without_the_annotation_is_scaled_too() -> None:
    before = live()
    before["metadata"]["annotations"] = {}
    body = rescaled.deployment(model(), "target", before, 0, "")
    assert body["spec"]["replicas"] == 0
