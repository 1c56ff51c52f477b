"""`specdec prune`: files that resources of a claim use; a Job lists or deletes other files."""

import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.jobs import prune as job
from specdec.pipeline.volume import references
from specdec.tools.cli.app import app
from support.fake_api import MODELS, Api

pytestmark = pytest.mark.usefixtures("login")
Json = dict[str, Any]
LAB = "namespaces/lab"
CLAIM = f"/api/v1/{LAB}/persistentvolumeclaims/models"
JOBS = f"/apis/batch/v1/{LAB}/jobs"
PODS = f"/api/v1/{LAB}/pods"
OPERATORS = "/apis/apps/v1/namespaces/specdec-system/deployments"


class Cluster(Api):
    """Runs the program of a created Job on a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.created: list[Json] = []
        self.failing = False
        groups = [{"name": "apps"}]
        kinds = {"resources": [{"kind": "Deployment"}]}
        self.objects |= {"/apis": {"groups": groups}, "/apis/apps/v1": kinds, JOBS: []}
        self.objects[f"/apis/apps/v1/{LAB}/deployments"] = []
        self.objects[CLAIM] = {
            "metadata": {"name": "models", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }

    @override
    def write(self, method: str, address: str, body: Any) -> tuple[int, bytes]:
        path = address.partition("?")[0]
        if method == "POST" and path == JOBS:
            self.created.append(body)
            self._run(body)
            return 201, json.dumps(body).encode()
        assert method == "DELETE"
        del self.objects[path]
        return 200, b"{}"

    def _run(self, body: Json) -> None:
        name = body["metadata"]["name"]
        arguments = body["spec"]["template"]["spec"]["containers"][0]["command"][3:]
        log = io.StringIO()
        with contextlib.redirect_stdout(log):
            status = job.main([*arguments, "--volume", str(self.root)])
        ended = "Failed" if status or self.failing else "Complete"
        terminated = {"terminated": {"message": log.getvalue().splitlines()[-1]}}
        self.objects |= {
            f"{JOBS}/{name}": {
                **body,
                "metadata": {**body["metadata"], "uid": "j", "resourceVersion": "1"},
                "status": {"conditions": [{"type": ended, "status": "True"}]},
            },
            PODS: [
                {
                    "metadata": {
                        "name": "p",
                        "uid": "p",
                        "creationTimestamp": "2026-01-01T00:00:00Z",
                    },
                    "status": {"containerStatuses": [{"state": terminated}]},
                }
            ],
            f"{PODS}/p/log": log.getvalue(),
        }


@pytest.fixture
def api(tmp_path: Path) -> Cluster:
    root = tmp_path / "volume"
    for place in ("engines/e0", "engines/e1", "checkpoints/c0", "repositories/r0"):
        (root / place).mkdir(parents=True)
        (root / place / "file").write_bytes(bytes(2000))
        os.utime(root / place, (0, 0))
    return Cluster(root)


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the Job's program run in a thread of this process, without signal handlers."""
    monkeypatch.setenv("SPECDEC_TERMINATION_LOG", str(tmp_path / "termination"))
    monkeypatch.setattr("specdec.jobs.result.signal.signal", lambda *_: None)


def given(api: Cluster, *bodies: Json) -> None:
    api.objects[f"{MODELS}/{LAB}/speculativemodels"] = list(bodies)


def resource(name: str, claim: str = "models", **status: Any) -> Json:
    spec = {"storage": {"existingClaim": claim}}
    return {"metadata": {"name": name, "namespace": "lab"}, "spec": spec, "status": status}


def specdec(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["prune", *arguments])


def left(api: Cluster) -> set[str]:
    return {f"{kind.name}/{entry.name}" for kind in api.root.iterdir() for entry in kind.iterdir()}


def test_unused_directories_are_listed_and_stay(api: Cluster) -> None:
    given(api, resource("pair", engines=[{"key": "e1"}], models=[{"digest": "c0"}]))
    before = left(api)
    result = specdec("models")
    assert result.exit_code == 0, result.output
    assert left(api) == before
    *table, verdict = result.stdout.splitlines()
    assert [line.split()[0] for line in table] == ["Directory", "engines/e0", "repositories/r0"]
    assert verdict == (
        "2 of 4 directories on models are unused (4.0 kB); used by pair; --delete deletes them"
    )
    (created,) = api.created
    assert created["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["readOnly"]
    assert f"{JOBS}/{created['metadata']['name']}" not in api.objects, "the Job must be deleted"


def test_unused_directories_are_deleted_on_request(api: Cluster) -> None:
    given(api, resource("pair", engines=[{"key": "e1"}], repository={"hash": ""}))
    result = specdec("models", "--delete", "--json")
    assert result.exit_code == 0, result.output
    assert left(api) == {"engines/e1"}
    output = json.loads(result.stdout)
    assert output["resources"] == ["pair"]
    assert {item["name"] for item in output["items"] if item["deleted"]} == {"e0", "c0", "r0"}


def test_new_directories_stay(api: Cluster) -> None:
    given(api)
    os.utime(api.root / "engines" / "e0")
    result = specdec("models", "--delete", "--older-than", "2h")
    assert left(api) == {"engines/e0"}
    row = r"engines/e0 2.0 kB \d+s kept: too new"
    assert re.search(row, " ".join(result.stdout.split()))
    assert result.stdout.endswith("deleted 3 (6.0 kB); used by no resource\n")


def test_delete_waits_for_jobs_of_the_claim(api: Cluster) -> None:
    given(api)
    template = {"metadata": {"labels": {"specdec.dev/claim": "models"}}}
    running = {"metadata": {"name": "engine-1"}, "spec": {"template": template}}
    api.objects[JOBS] = [running]
    result = specdec("models", "--delete")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "specdec: Job engine-1 uses claim models: wait until it ends\n"
    assert api.created == []
    assert specdec("models").exit_code == 0, "listing disturbs no Job"


def test_missing_claim_names_those_of_the_namespace(api: Cluster) -> None:
    given(api, resource("a"), {"metadata": {"name": "b", "namespace": "lab"}, "spec": {}})
    result = specdec("other")
    assert result.exit_code == 2
    assert "there is no claim other in namespace lab: its resources use b-models, models" in (
        result.stderr
    )


def test_failed_job_is_reported_with_its_message(api: Cluster) -> None:
    given(api, resource("pair", repository={"hash": "r0"}))
    result = specdec("models", "--delete")
    assert result.exit_code == 1
    assert (
        "failed: VolumeUnusable: repository r0 is used and its manifest cannot be read"
        in result.stderr
    )
    assert len(left(api)) == 4


@pytest.mark.parametrize("text", ["", "1", "1w", "-1h", "1.5h", "one day"])
def test_bad_duration_is_one_sentence(text: str) -> None:
    result = specdec("models", "--older-than", text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


def test_image_is_the_operators(api: Cluster) -> None:
    given(api)
    container = {"image": "example.com/operator:2"}
    template = {"spec": {"containers": [container]}}
    api.objects[OPERATORS] = [{"metadata": {"name": "o"}, "spec": {"template": template}}]
    assert specdec("models").exit_code == 0
    assert specdec("models", "--image", "example.com/other:3").exit_code == 0
    images = [body["spec"]["template"]["spec"]["containers"][0]["image"] for body in api.created]
    assert images == ["example.com/operator:2", "example.com/other:3"]


def test_histories_keep_what_they_name(api: Cluster) -> None:
    history = [{"revision": "r9", "engines": ["e0"], "checkpoints": ["c0"]}]
    given(api, resource("pair", history=history))
    result = specdec("models", "--delete")
    assert result.exit_code == 0, result.output
    assert left(api) == {"engines/e0", "checkpoints/c0"}


def test_live_servers_and_sources_keep_what_they_use() -> None:
    prebuilt = {"pvc": {"claimName": "models", "path": "engines/e7/sub"}}
    other = {"pvc": {"claimName": "elsewhere", "path": "engines/e8"}}
    bodies = [
        resource("a", claim="second", engines=[{"key": "e9"}]),
        {**resource("b"), "spec": {"target": {"source": prebuilt, "list": [other]}}},
    ]
    server = {"metadata": {"annotations": {"specdec.dev/repository": "r5"}}}
    assert references.keep(bodies, [server, {"metadata": {}}], "models") == {
        "checkpoints": [],
        "engines": ["e7"],
        "repositories": ["r5"],
    }
