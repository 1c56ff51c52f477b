"""The status never describes an earlier state, even if the API server refuses a write."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cluster import ClusterError
from controlplane.operating import Lab, until
from controlplane.pipeline import claim, fetched, resource

pytestmark = pytest.mark.controlplane

DEFINITION = "speculativemodels.specdec.dev"
MESSAGE = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions/items"


def test_long_refusal_is_truncated_in_the_status(lab: Lab) -> None:
    lab.apply(claim("pair"), resource("pair"))
    fetched(lab)
    lab.wait("pair", "EnginesReady", "False", "Building")
    # These keys are invalid: the API server names each of them, with the rule that it breaks.
    wrong = [{"key": f"{number:03}{'!' * 300}", "operator": "Exists"} for number in range(64)]
    lab.patch("specm", "pair", {"spec": {"build": {"tolerations": wrong}}})
    condition = lab.wait("pair", "EnginesReady", "False", "Rejected")
    body = lab.get("specm", "pair")
    assert body is not None
    assert condition["observedGeneration"] == body["metadata"]["generation"]
    assert "spec.template.spec.tolerations[0].key: Invalid value" in condition["message"]
    assert 512 < len(condition["message"]) <= 1024
    assert lab.condition("pair")["reason"] == "Rejected"

    def logged() -> bool:
        lines = lab.operator.log.read_text().splitlines()
        own = [text for line in lines if f"{lab.namespace}/pair" in (text := message(line))]
        return any(len(t) > 32768 and "tolerations[63].key: Invalid value" in t for t in own)

    # The line of the log may appear a moment after the status.
    until(logged, "the whole message in the log")
    lab.patch("specm", "pair", {"spec": {"build": None}})
    lab.wait("pair", "EnginesReady", "False", "Building")


def message(line: str) -> str:
    """Return the message of a line of the operator's log; empty while the line is incomplete."""
    try:
        return str(json.loads(line)["message"])
    except ValueError:
        return ""


@contextmanager
def shorter_messages(lab: Lab, most: int) -> Iterator[None]:
    """Limit messages of conditions in the CRD to `most` characters, as another release may."""

    def patch(value: int) -> None:
        change: list[dict[str, Any]] = [
            {"op": "replace", "path": f"{MESSAGE}/properties/message/maxLength", "value": value}
        ]
        lab.plane.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", json.dumps(change))

    def enforced() -> bool:
        body = {"status": {"conditions": [condition("x" * (most + 1))]}}
        change = ("patch", "specm", "probe", "--subresource=status", "--type=merge")
        try:
            lab.kubectl(*change, "--dry-run=server", "-p", json.dumps(body))
        except ClusterError as error:
            return "Too long" in str(error)
        return False

    lab.apply(resource("probe", suspend=True))
    patch(most)
    try:
        until(enforced, "a definition in force")
        yield
    finally:
        patch(32768)


def condition(message: str) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "False",
        "reason": "Test",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_refused_status_is_written_with_short_messages(lab: Lab) -> None:
    with shorter_messages(lab, 100):
        lab.apply(claim("pair"), resource("pair"))
        fetched(lab)
        condition = lab.wait("pair", "EnginesReady", "False", "Building")
        assert "operator's log" in condition["message"]
        body = lab.get("specm", "pair")
        assert body is not None
        assert body["status"]["observedGeneration"] == body["metadata"]["generation"]
        assert body["status"]["phase"] == "Building"
    lab.kubectl("annotate", "specm", "pair", "test/touched=1")
    until(
        lambda: "builds the engine" in lab.condition("pair", "EnginesReady")["message"],
        lambda: f"a whole status again: {lab.describe('pair')}",
    )
