"""A run that continues, gets more entries or is cleaned up, and objects that stay."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from specdec.tools.certify import run
from unit.certify.bodies import failing, served, state
from unit.certify.fake_operator import CLAIMS, JOBS, RESOURCES, FakeOperator

Json = dict[str, Any]
Certify = Callable[..., Result]
# Most of these tests run the certification several times.
pytestmark = pytest.mark.slow


def stopped_at(place: str, certify: Certify, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a run when it calls this function of `run` for the entry logits."""
    original = getattr(run, place)

    def stop(*arguments: Any) -> Any:
        if "certify-logits" in str(arguments):
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(run, place, stop)
        result = certify()
    assert result.exit_code == 130
    assert "the same command continues" in result.stderr


# Interrupt while the run waits for the resource, after its load test, and before the result.
@pytest.mark.parametrize("place", ["state", "judge", "stages"])
def test_interrupted_run_continues_with_the_resource_that_exists(
    place: str, api: FakeOperator, certify: Certify, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_at(place, certify, monkeypatch)
    assert state(out, "draft-target-shared")["outcome"] == "passed"
    assert state(out, "logits")["outcome"] == "running"
    uid = api.store[f"{RESOURCES}/certify-logits"]["metadata"]["uid"]
    before = state(out, "baseline")
    api.writes.clear()
    result = certify()
    assert result.exit_code == 0, result.output
    # Finished entries do not run again, and the interrupted entry keeps its resource.
    assert api.created() == ["certify-lookahead", "certify-ngram"]
    loaded = {name.rpartition("-throughput-")[0] for name in api.created(JOBS)}
    assert loaded == {"certify-lookahead"}
    kept = json.loads((out / "entries" / "logits" / "resource.json").read_text("utf-8"))
    assert kept["metadata"]["uid"] == uid
    assert state(out, "baseline") == before
    assert "5 of 5 passed" in result.stdout


def test_finished_run_only_writes_its_report_again(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    assert certify().exit_code == 0
    (out / "index.html").unlink()
    api.writes.clear()
    result = certify()
    assert result.exit_code == 0
    assert api.created() == []
    assert (out / "index.html").is_file()
    assert "1/5 baseline passed (earlier)" in result.stderr


def test_resource_left_by_a_finished_entry_is_deleted(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    assert certify("--only", "baseline").exit_code == 0
    identity = json.loads((out / "run.json").read_text())["id"]
    left = state(out, "baseline")
    del left["cleaned"]
    (out / "entries/baseline/result.json").write_text(json.dumps(left))
    body = served()
    body["metadata"] |= {
        "name": "certify-baseline",
        "labels": {"certify.specdec.dev/run": identity},
    }
    api._save(f"{RESOURCES}/certify-baseline", body)
    assert certify("--only", "baseline").exit_code == 0
    assert f"{RESOURCES}/certify-baseline" not in api.store


def test_failed_entries_run_again_only_on_request(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    api.scripts["certify-logits"] = [failing()]
    assert certify().exit_code == 1
    api.writes.clear()
    assert certify().exit_code == 1
    assert api.created() == []
    del api.scripts["certify-logits"]
    assert certify("--retry").exit_code == 0
    assert api.created() == ["certify-logits"]
    assert len([i for i in state(out, "logits")["history"] if i["type"] == "Accepted"]) == 1


def test_entries_can_be_added_to_a_run(api: FakeOperator, certify: Certify) -> None:
    assert "1 of 1 passed" in certify("--only", "baseline").stdout
    assert "2 of 2 passed" in certify("--only", "lookahead").stdout
    assert api.created() == ["certify-baseline", "certify-lookahead"]


def test_kept_resources_are_suspended(api: FakeOperator, certify: Certify) -> None:
    assert certify("--only", "baseline", "--keep").exit_code == 0
    body = api.store[f"{RESOURCES}/certify-baseline"]
    assert body["spec"]["suspend"] is True
    assert f"{CLAIMS}/specdec-certify" in api.store


def test_claim_of_the_user_is_used_and_kept(api: FakeOperator, certify: Certify) -> None:
    result = certify("--only", "baseline", "--claim", "mine")
    assert result.exit_code == 2
    assert "claim mine is missing in namespace lab: create it" in result.stderr
    api.objects[f"{CLAIMS}/mine"] = {"metadata": {"name": "mine"}}
    seen: list[Json] = []
    api.on_read = lambda name: seen.append(api.store[f"{RESOURCES}/{name}"])
    assert certify("--only", "baseline", "--claim", "mine").exit_code == 0
    assert seen[0]["spec"]["storage"] == {"existingClaim": "mine"}
    assert not [path for _, path in api.writes if path.startswith(CLAIMS)]


def test_folder_of_another_run_is_not_overwritten(
    api: FakeOperator, certify: Certify, out: Path
) -> None:
    assert certify("--only", "baseline").exit_code == 0
    result = certify("--only", "baseline", "--prompts", "5")
    assert result.exit_code == 2
    assert result.stderr == (
        f"specdec: --output {out} has a run with prompts 16, not 5; give the same options, or "
        "another folder\n"
    )
    (out / "run.json").write_text("{}")
    assert "is of another release" in certify().stderr
    (out / "run.json").unlink()
    assert f"--output {out} has files of something else" in certify().stderr


def test_object_of_somebody_else_is_not_touched(api: FakeOperator, certify: Certify) -> None:
    body = served()
    body["metadata"] |= {"name": "certify-baseline", "labels": {}}
    api._save(f"{RESOURCES}/certify-baseline", body)
    result = certify("--only", "baseline")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "specdec: SpeculativeModel certify-baseline in namespace lab was created by somebody "
        "else: delete it, or select another --namespace"
    )
    assert f"{RESOURCES}/certify-baseline" in api.store
