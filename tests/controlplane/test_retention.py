"""`spec.revisionHistoryLimit`: the operator prunes once, and cancels for a changing resource."""

import json

import pytest

from controlplane.operating import Lab, Object, until
from controlplane.pipeline import at_rest, published, resource, serve, unwritten, verified

pytestmark = pytest.mark.controlplane


def status(lab: Lab) -> Object:
    body = lab.get("specm", "pair")
    assert body is not None
    value: Object = body["status"]
    return value


def roll(lab: Lab, tokens: int) -> None:
    """Change the draft length, and end the Jobs until its revision serves."""
    publish, verify = tuple(lab.jobs("publish")), tuple(lab.jobs("verify"))
    lab.patch("specm", "pair", {"spec": {"speculation": {"draftTokens": tokens}}})
    published(lab, publish)
    verified(lab, verify)


def test_revision_that_left_the_history_is_pruned_once(lab: Lab) -> None:
    first = serve(lab, "pair", revisionHistoryLimit=0)["status"]["repository"]["hash"]
    roll(lab, 6)
    job = lab.job("prune")
    body = lab.get("job", job)
    assert body is not None
    command = body["spec"]["template"]["spec"]["containers"][0]["command"]
    assert json.loads(command[command.index("--only") + 1]) == {"repositories": [first]}
    lab.wait("pair", "VolumePruned", "Unknown")
    assert lab.condition("pair")["status"] == "True"
    # The status holds the names of unused revisions: a restart does not lose them.
    lab.operator.kill()
    lab.operator.start()
    lab.finish(job, {"prune": {"directories": 1, "deleted": 1, "bytes": 1000}})
    lab.wait("pair", "VolumePruned", "True", "Pruned")
    until(lambda: "unused" not in status(lab), lambda: lab.describe("pair"))
    assert [item["revision"] for item in status(lab)["history"]] != [first]
    at_rest(lab)
    assert lab.jobs("prune") == [job]
    unwritten(lab, "pair")


def test_failed_prune_leaves_the_service_ready_and_is_an_event(lab: Lab) -> None:
    serve(lab, "pair", revisionHistoryLimit=0)
    roll(lab, 6)
    error = {"reason": "VolumeUnusable", "message": "a manifest cannot be read"}
    lab.finish(lab.job("prune"), {"error": error}, exit_code=2)
    lab.wait("pair", "VolumePruned", "False", "PruneFailed")
    assert lab.condition("pair")["status"] == "True"

    def warned() -> bool:
        return any(
            e["reason"] == "PruneFailed" and e["type"] == "Warning" for e in lab.all("events")
        )

    until(warned, "a warning event")


def test_resource_in_progress_cancels_the_prune(lab: Lab) -> None:
    serve(lab, "pair", revisionHistoryLimit=0)
    roll(lab, 6)
    lab.job("prune")
    other = resource("other")
    other["spec"]["storage"] = {"existingClaim": "pair-models"}
    other["spec"]["suspend"] = True
    lab.apply(other)
    until(lambda: not lab.jobs("prune"), lambda: f"a cancelled Job: {lab.describe('pair')}")
    lab.wait("pair", "VolumePruned", "Unknown", "PruneWaits")
    # An earlier message of the same reason is that the resources are read next.
    until(
        lambda: (
            "SpeculativeModel other" in lab.condition("pair", "VolumePruned").get("message", "")
        ),
        lambda: lab.describe("pair"),
    )
    assert lab.condition("pair")["status"] == "True"
    lab.kubectl("delete", "specm", "other")
    lab.job("prune")
