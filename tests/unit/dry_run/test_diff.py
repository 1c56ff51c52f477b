"""`specdec plan --diff`: the cost of a change."""

import shutil
from pathlib import Path

import pytest
import yaml

from unit.dry_run.commands import ROOT, Write, plan_json, run


def test_changed_draft_tokens_republish_and_rebuild_nothing(write: Write) -> None:
    before, after = write("a"), write("b", speculation__draftTokens=2)
    diff = plan_json("-f", after, "--diff", before)["diff"]
    assert diff["rebuild"] == []
    assert diff["republish"]["changed"] == ["tensorrt_llm_bls/config.pbtxt"]
    assert [item["field"] for item in diff["restart"]] == ["repository"]
    shown = run("plan", "-f", after, "--diff", before).stdout
    assert "republish the repository: 1 changed" in shown
    assert "nothing is rebuilt" in shown


def test_longer_sequence_rebuilds_only_the_target(write: Write) -> None:
    draft = {"speculation__draftTarget__draft__limits__maxSeqLen": 1024}
    before, after = write("a", **draft), write("b", **draft, target__limits__maxSeqLen=1024)
    diff = plan_json("-f", after, "--diff", before)["diff"]
    (rebuilt,) = diff["rebuild"]
    assert rebuilt["role"] == "target"
    changed = {"field": "limits.maxSeqLen", "from": 512, "to": 1024}
    assert changed in rebuilt["changed"]


def test_another_draft_length_is_no_change_of_the_limit(write: Write) -> None:
    before, after = write("a"), write("b", speculation__maxDraftTokens=6)
    (rebuilt,) = plan_json("-f", after, "--diff", before)["diff"]["rebuild"]
    assert rebuilt["changed"] == [{"field": "maxDraftTokens", "from": 8, "to": 6}]


def test_changed_replicas_only_scale(write: Write) -> None:
    before, after = write("a"), write("b", serving__replicas=3)
    diff = plan_json("-f", after, "--diff", before)["diff"]
    assert diff.pop("scale") == [{"field": "replicas", "from": 1, "to": 3}]
    assert not any(diff.values())
    shown = run("plan", "-f", after, "--diff", before).stdout
    assert shown.splitlines()[-1] == "nothing is rebuilt or republished or restarted"


def test_changed_pod_field_restarts_and_republishes_nothing(write: Write) -> None:
    before, after = write("a"), write("b", serving__nodeSelector={"disk": "fast"})
    diff = plan_json("-f", after, "--diff", before)["diff"]
    assert not diff["rebuild"]
    assert not diff["republish"]
    assert [item["field"] for item in diff["restart"]] == ["spec.nodeSelector.disk"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample", "serving", "order", "interrupts"),
    [
        ("reference-draft-target", {}, "new ones are ready first", False),
        (
            "tensorrt-fp8-one-gpu",
            {},
            "an old one stops before a new one starts, and no pod serves in between",
            True,
        ),
        (
            "tensorrt-fp8-one-gpu",
            {"replicas": 2},
            "an old one stops before a new one starts",
            False,
        ),
        ("tensorrt-fp8-one-gpu", {"rollout": {"maxSurge": 1}}, "new ones are ready first", False),
        (
            "tensorrt-fp8-one-gpu",
            {"replicas": 2, "rollout": {"maxSurge": 1, "maxUnavailable": 1}},
            "old ones stop while new ones start",
            False,
        ),
        (
            "reference-draft-target",
            {"replicas": 2, "rollout": {"strategy": "Recreate"}},
            "all old ones stop before new ones start, and no pod serves in between",
            True,
        ),
        (
            "tensorrt-405b-two-nodes",
            {},
            "an old one stops before a new one starts, and no pod serves in between",
            True,
        ),
    ],
)
def test_restart_names_the_order_of_the_strategy(
    tmp_path: Path, sample: str, serving: dict[str, object], order: str, interrupts: bool
) -> None:
    file, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    shutil.copy(ROOT / "manifests" / "samples" / f"{sample}.yaml", file)
    body = yaml.safe_load(file.read_text())
    body["spec"].setdefault("serving", {}).update(serving)
    file.write_text(yaml.safe_dump(body))
    body["spec"]["serving"]["nodeSelector"] = {"disk": "fast"}
    after.write_text(yaml.safe_dump(body))
    assert plan_json("-f", after, "--diff", file)["diff"]["rollout"]["interrupts"] is interrupts
    shown = run("plan", "-f", after, "--diff", file).stdout
    assert f"restart the pods, {order}: " in shown
    assert "spec.nodeSelector.disk (none) -> fast" in shown


def test_another_claim_rebuilds_everything(write: Write) -> None:
    before = write("a", storage={"existingClaim": "one"})
    after = write("b", storage={"existingClaim": "two"})
    after.write_text(after.read_text().replace("name: pair", "name: other"))
    diff = plan_json("-f", after, "--diff", before)["diff"]
    assert diff["fetch"] == ["target", "draft"]
    claim = {"field": "claim", "from": "one", "to": "two"}
    assert [item["changed"] for item in diff["rebuild"]] == [[claim], [claim]]


def test_change_that_the_api_server_refuses_is_refused(write: Write) -> None:
    before = write("a", storage={"existingClaim": "one"})
    after = write("b", storage={"existingClaim": "two"})
    result = run("plan", "-f", after, "--diff", before)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "spec.storage.existingClaim: Invalid value: storage.existingClaim cannot" in result.stderr
    )


def test_equal_resources_change_nothing(write: Write) -> None:
    assert run("plan", "-f", write("a"), "--diff", write("b")).stdout == "nothing changes\n"
