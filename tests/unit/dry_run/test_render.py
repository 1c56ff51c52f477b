"""`specdec render`: whole folders or none, and never over somebody else's files."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from golden.cases import SAMPLES
from support.documents import load
from unit.dry_run.test_plan import DRAFT_TARGET, run


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=lambda p: p.stem)
def test_every_sample_is_rendered(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("render", "-f", sample, "-o", out).exit_code == 0
    plan = json.loads((out / "specdec-plan.json").read_text())
    for one in plan["repository"]["files"]:
        text = (out / "repository" / one["path"]).read_bytes()
        assert hashlib.sha256(text).hexdigest() == one["sha256"]
    objects = [load(path.read_text()) for path in out.glob("*.yaml")]
    kinds = {obj["kind"] for obj in objects}
    assert kinds >= {"PersistentVolumeClaim", "Job", "ConfigMap", "Service"}
    assert kinds & {"Deployment", "LeaderWorkerSet"} == {one["kind"] for one in plan["servers"]}
    jobs = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Job"}
    assert jobs == {job["name"] for job in plan["jobs"]}
    # The owner's uid is not known: by hand they must not be collected at once.
    assert not any("ownerReferences" in obj["metadata"] for obj in objects)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_known_uid_keeps_the_owner(tmp_path: Path) -> None:
    body = load(DRAFT_TARGET.read_text())
    body["metadata"]["uid"] = "1234"
    (tmp_path / "cr.yaml").write_text(yaml.safe_dump(body))
    assert run("render", "-f", tmp_path / "cr.yaml", "-o", tmp_path / "out").exit_code == 0
    claim = next((tmp_path / "out").glob("persistentvolumeclaim-*.yaml"))
    (owner,) = load(claim.read_text())["metadata"]["ownerReferences"]
    assert owner["uid"] == "1234"


def test_force_replaces_only_what_render_wrote(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("render", "-f", DRAFT_TARGET, "-o", out).exit_code == 0
    (out / "old.yaml").write_text("")
    again = run("render", "-f", DRAFT_TARGET, "-o", out)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    assert (out / "old.yaml").exists()
    assert run("render", "-f", DRAFT_TARGET, "-o", out, "--force").exit_code == 0
    assert not (out / "old.yaml").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_foreign_files_stay_even_with_force(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    result = run("render", "-f", DRAFT_TARGET, "-o", tmp_path, "--force")
    assert result.exit_code == 2
    assert "name another folder" in result.stderr
    assert (tmp_path / "mine").read_text() == "x"
    result = run("render", "-f", DRAFT_TARGET, "-o", tmp_path / "mine", "--force")
    assert (result.exit_code, "is no folder" in result.stderr) == (2, True)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert run("render", "-f", DRAFT_TARGET, "-o", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "specdec-plan.json").exists()


def test_a_refused_resource_leaves_nothing(tmp_path: Path) -> None:
    text = DRAFT_TARGET.read_text().replace("draftTokens: 4", "draftTokens: 9")
    (tmp_path / "cr.yaml").write_text(text)
    result = run("render", "-f", tmp_path / "cr.yaml", "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cr.yaml"]
