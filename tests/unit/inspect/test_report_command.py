"""The command `specdec report`: its archive, and objects that it cannot read."""

import json
import stat
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.tools.cli.app import app
from specdec.tools.inspect.report.packing import NOT_INCLUDED
from support.documents import definition
from support.fake_api import kubeconfig, pod, proxied
from unit.inspect.recorded import JOBS, PODS, RESOURCE, record
from unit.inspect.test_check_command import Cluster
from unit.inspect.test_checks import operator
from unit.inspect.test_report import body_of

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Reported(Cluster):
    """Serves a log with the container's name, for the current and the previous run."""

    @override
    def respond(self, address: str) -> tuple[int, bytes]:
        parts = urlsplit(address)
        assert "secrets" not in parts.path
        if not parts.path.endswith("/log") or parts.path in self.errors:
            return super().respond(address)
        query = parse_qs(parts.query)
        when = "before" if "previous" in query else "now"
        return 200, f"{when} {query.get('container', [''])[0]} hf_{'a' * 30}\n".encode()


@pytest.fixture
def api() -> Reported:
    api = Reported()
    record(api)
    env = [{"name": "MY_PASSWORD", "value": "correct horse"}]
    server = pod(
        "pair-0",
        "server",
        containerStatuses=[{"name": "server", "state": {"running": {}}, "restartCount": 2}],
    )
    server["spec"]["containers"] = [{"name": "server", "env": env}]
    lab = "namespaces/lab"
    api.objects |= {
        "/version": {"gitVersion": "v1.34.1"},
        "/apis": {"groups": []},
        f"{DEFINITIONS}/speculativemodels.specdec.dev": definition(),
        "/apis/apps/v1/deployments": [operator()],
        "/api/v1/nodes": [],
        "/apis/storage.k8s.io/v1/storageclasses": [],
        JOBS: [],
        PODS: [server],
        proxied("pair-0"): "metric 1\n",
        "/api/v1/namespaces/specdec-system/pods": [],
        f"/apis/events.k8s.io/v1/{lab}/events": [],
        f"/apis/apps/v1/{lab}/deployments": [body_of("Deployment", "pair", spec={})],
        f"/api/v1/{lab}/configmaps": [],
        f"/api/v1/{lab}/services": [],
        f"/api/v1/{lab}/persistentvolumeclaims": [],
        f"/api/v1/{lab}/persistentvolumeclaims/pair-models": body_of(
            "PersistentVolumeClaim", "pair-models"
        ),
    }
    return api


def specdec(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", "pair", *arguments])


def unpacked(path: Path) -> dict[str, str]:
    """Return the files of an archive, by their paths inside its only folder."""
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert len({member.name.partition("/")[0] for member in members}) == 1
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in members
        }


@pytest.mark.usefixtures("login")
def test_archive_has_everything_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "out.tar.gz"
    result = specdec("--output", str(path))
    assert result.exit_code == 0, result.output
    packed = unpacked(path)
    assert result.stdout == f"{path}: {len(packed)} files; read them before you send them\n"
    assert set(packed) == {
        "about.json",
        "check.json",
        "status.json",
        "events.json",
        NOT_INCLUDED,
        "objects/lab/speculativemodel-pair.yaml",
        "objects/lab/deployment-pair.yaml",
        "objects/lab/pod-pair-0.yaml",
        "objects/lab/persistentvolumeclaim-pair-models.yaml",
        "objects/specdec-system/deployment-specdec-operator.yaml",
        "logs/pair-0.log",
        "logs/pair-0-previous.log",
        "metrics/pair-0.txt",
    }
    assert packed["logs/pair-0-previous.log"] == "before server [removed]\n"
    assert json.loads(packed["about.json"])["kubernetes"] == "v1.34.1"
    assert json.loads(packed["check.json"])["format"] == "specdec.dev/check/v1"
    container = yaml.safe_load(packed["objects/lab/pod-pair-0.yaml"])["spec"]["containers"][0]
    assert container["env"] == [{"name": "MY_PASSWORD", "value": "[removed]"}]
    assert "log and metrics of the operator are not included" in packed[NOT_INCLUDED]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in tmp_path.iterdir() if item.name.startswith(".")] == []


def test_unreadable_parts_are_listed(api: Reported, login: Path, tmp_path: Path) -> None:
    for place in (f"{PODS}/pair-0/log", "/apis/apps/v1/namespaces/lab/deployments", JOBS):
        api.errors[place] = (403, "User cannot do this")
    del api.objects["/api/v1/namespaces/lab/persistentvolumeclaims/pair-models"]
    path = tmp_path / "out.tar.gz"
    result = specdec("-o", str(path))
    assert result.exit_code == 0, result.output
    listed = unpacked(path)[NOT_INCLUDED]
    for part in ("pair-0", "Deployment", "Job", "claim pair-models is not included"):
        assert part in listed
    assert f"{len(listed.splitlines())} parts are not included: {NOT_INCLUDED}" in result.stderr


def test_default_name_has_resource_and_time(
    api: Reported, login: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert specdec().exit_code == 0
    [path] = tmp_path.glob("specdec-report-pair-*T*Z.tar.gz")
    assert "status.json" in unpacked(path)


def test_values_of_the_callers_environment_are_removed(
    api: Reported, login: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "an-odd-value")
    api.objects[proxied("pair-0")] = "metric an-odd-value\n"
    assert specdec("-o", str(tmp_path / "out")).exit_code == 0
    assert unpacked(tmp_path / "out")["metrics/pair-0.txt"] == "metric [removed]\n"


def test_output_that_cannot_be_written_is_one_sentence(
    api: Reported, login: Path, tmp_path: Path
) -> None:
    for path, message in (
        (tmp_path, "is a folder; name a file"),
        (tmp_path / "none" / "out", "there is no folder"),
    ):
        result = specdec("--output", str(path))
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr
    assert api.seen == []


def test_failed_write_leaves_no_file(
    api: Reported, login: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(Path, "replace", full)
    result = specdec("-o", str(out / "report.tar.gz"))
    assert result.exit_code == 2
    assert "cannot be written (No space left on device)" in result.stderr
    assert list(out.iterdir()) == []


def test_unknown_resource_and_unreachable_server_write_nothing(
    api: Reported, login: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.tar.gz"
    del api.objects[RESOURCE]
    assert specdec("-o", str(out)).exit_code == 2
    kubeconfig(login, "http://127.0.0.1:9")
    assert specdec("-o", str(out)).exit_code == 3
    assert not out.exists()
