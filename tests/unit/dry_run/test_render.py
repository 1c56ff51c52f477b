"""`specdec render` writes complete folders or none, and never replaces foreign files."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from specdec.tools.dry_run.rendering import dump
from specdec.tools.dry_run.yaml_reader import documents
from support.documents import load
from support.golden_cases import SAMPLES
from unit.dry_run.commands import DRAFT_TARGET, run


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=lambda p: p.stem)
def test_every_sample_is_rendered(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("render", "-f", sample, "-o", out).exit_code == 0
    plan = json.loads((out / "specdec-plan.json").read_text())
    for file in plan["repository"]["files"]:
        text = (out / "repository" / file["path"]).read_bytes()
        assert hashlib.sha256(text).hexdigest() == file["sha256"]
    objects = [load(path.read_text()) for path in out.glob("*.yaml")]
    kinds = {obj["kind"] for obj in objects}
    assert kinds >= {"PersistentVolumeClaim", "Job", "ConfigMap", "Service"}
    assert kinds & {"Deployment", "LeaderWorkerSet"} == {
        server["kind"] for server in plan["servers"]
    }
    jobs = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Job"}
    assert jobs == {job["name"] for job in plan["jobs"]}
    # The owner's uid is unknown, and the garbage collector deletes objects with an unknown owner.
    assert not any("ownerReferences" in obj["metadata"] for obj in objects)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("text", ["7890123456e78901", "1e9", "y", "0o14", "2026-01-01", "~"])
def test_text_that_kubectl_would_read_as_another_value_is_quoted(text: str) -> None:
    """A digest can consist of digits and one e: kubectl refused such an annotation."""
    assert documents(dump({"value": text})) == [{"value": text}]


def test_known_uid_keeps_the_owner(tmp_path: Path) -> None:
    body = load(DRAFT_TARGET.read_text())
    body["metadata"]["uid"] = "1234"
    (tmp_path / "cr.yaml").write_text(yaml.safe_dump(body))
    assert run("render", "-f", tmp_path / "cr.yaml", "-o", tmp_path / "out").exit_code == 0
    claim = next((tmp_path / "out").glob("persistentvolumeclaim-*.yaml"))
    (owner,) = load(claim.read_text())["metadata"]["ownerReferences"]
    assert owner["uid"] == "1234"


def test_force_replaces_only_results_of_render(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("render", "-f", DRAFT_TARGET, "-o", out).exit_code == 0
    (out / "old.yaml").write_text("")
    second = run("render", "-f", DRAFT_TARGET, "-o", out)
    assert (second.exit_code, "--force" in second.stderr) == (2, True)
    assert (out / "old.yaml").exists()
    assert run("render", "-f", DRAFT_TARGET, "-o", out, "--force").exit_code == 0
    assert not (out / "old.yaml").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_foreign_files_are_kept_even_with_force(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    result = run("render", "-f", DRAFT_TARGET, "-o", tmp_path, "--force")
    assert result.exit_code == 2
    assert "name another folder" in result.stderr
    assert (tmp_path / "mine").read_text() == "x"
    result = run("render", "-f", DRAFT_TARGET, "-o", tmp_path / "mine", "--force")
    assert (result.exit_code, "is not a folder" in result.stderr) == (2, True)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert run("render", "-f", DRAFT_TARGET, "-o", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "specdec-plan.json").exists()


def test_refused_resource_writes_nothing(tmp_path: Path) -> None:
    text = DRAFT_TARGET.read_text().replace("draftTokens: 4", "draftTokens: 9")
    (tmp_path / "cr.yaml").write_text(text)
    result = run("render", "-f", tmp_path / "cr.yaml", "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cr.yaml"]
