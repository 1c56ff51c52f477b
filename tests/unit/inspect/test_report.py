"""`specdec report`: everything about a resource, and no credential in any file."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.cli.app import app
from specdec.inspect.report import packing
from specdec.inspect.report.masking import masked
from specdec.inspect.report.packing import NOT_INCLUDED, Material, files
from specdec.inspect.snapshot import Snapshot
from support.documents import definition
from support.fake_api import Json, kubeconfig, pod, proxied
from unit.inspect.recorded import JOBS, PODS, RESOURCE, record
from unit.inspect.test_checks import Cluster, operator

ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def body_of(kind: str, name: str, **changes: Any) -> Json:
    meta = {"name": name, "namespace": "lab", **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **changes}


def letters(alphabet: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most)


# What has the form of a credential, wherever it stands.
TOKENS = st.one_of(
    letters(ALNUM, 20, 40).map(lambda text: f"hf_{text}"),
    letters(ALNUM, 20, 40).map(lambda text: f"ghp_{text}"),
    letters(ALNUM, 20, 40).map(lambda text: f"nvapi-{text}"),
    letters(UPPER, 16, 16).map(lambda text: f"AKIA{text}"),
    letters(ALNUM + "._~-", 16, 60).map(lambda text: f"Bearer {text}"),
    letters(ALNUM, 12, 30).map(lambda text: f"Authorization: Basic {text}=="),
    letters(ALNUM, 12, 30).map(lambda text: f"https://user:{text}@example.com/"),
)
VARIABLES = st.builds(
    lambda before, kind, after: f"{before}{kind}{after}",
    letters(UPPER, 0, 6),
    st.sampled_from(["TOKEN", "PASSWORD", "KEY", "_token_", "Password", "apikey"]),
    letters(UPPER, 0, 6),
)
BEFORE = st.sampled_from(["", " ", "\n", '{"a": "b\\n', "token=", "x", "Ä", "[", "\\t", "-", "'"])
AFTER = st.sampled_from(["", " ", "\n", '"}', "]", ",", "\\n", " and more text " * 20])


def secret_part(token: str) -> str:
    """What must not be in a file: the token without its name."""
    return token.rpartition(" ")[2].removeprefix("https://user:").removesuffix("@example.com/")


@given(tokens=st.lists(TOKENS, min_size=14, max_size=14), before=BEFORE, after=AFTER)
def test_no_token_is_in_any_file(tokens: list[str], before: str, after: str) -> None:
    planted = [f"{before}{token}{after}" for token in tokens]
    texts = iter(planted)
    container = {
        "name": "server",
        "command": ["serve", next(texts), "--api-key", tokens[0], f"--token={tokens[1]}"],
        "env": [{"name": "EXTRA", "value": next(texts)}],
    }
    objects = [
        body_of("Pod", "pair-0", spec={"containers": [container]}),
        body_of("ConfigMap", "pair-cm", data={"HF_TOKEN": tokens[2], "file.json": next(texts)}),
        body_of("Job", "pair-1", metadata={"annotations": {"a/b": next(texts), next(texts): "c"}}),
    ]
    snapshot = Snapshot(
        status={"conditions": [{"message": next(texts)}]},
        logs={"pair-0": next(texts), "pair-0-previous": f"a line\n{next(texts)}\nanother line"},
        metrics={"pair-0": f'metric{{label="{next(texts)}"}} 1'},
        events=[{"note": next(texts)}],
        notes=[next(texts)],
    )
    about, check = {"name": next(texts)}, {"checks": [{"message": next(texts)}]}
    packed = files(Material(about, check, objects, snapshot), [])
    written = b"\n".join(packed.values()).decode()
    assert [token for token in tokens if secret_part(token) in written] == []
    assert not [path for path in packed if any(secret_part(token) in path for token in tokens)]


@given(
    names=st.lists(VARIABLES, min_size=3, max_size=3),
    values=st.lists(letters(ALNUM + "/+ .:", 4, 30), min_size=3, max_size=3),
)
def test_no_literal_of_a_secret_variable_is_in_any_file(
    names: list[str], values: list[str]
) -> None:
    planted = [f"planted{number}{value}" for number, value in enumerate(values)]
    env = [{"name": name, "value": value} for name, value in zip(names, planted, strict=True)]
    template = {"spec": {"initContainers": [{"env": env[:1]}], "containers": [{"env": env[1:]}]}}
    objects = [body_of("Deployment", "pair", spec={"template": template})]
    logs = {"pair-0": f"starts with {planted[0]}\nand {planted[1]}, {planted[2]}\n"}
    packed = files(Material({}, {}, objects, Snapshot(logs=logs)), [])
    written = b"\n".join(packed.values()).decode()
    assert "planted" not in written
    assert written.count("[removed]") >= 6
    assert all(name in written for name in names)


def test_references_and_ordinary_fields_are_kept() -> None:
    container = {
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
            {"name": "HOME", "value": "/root"},
        ],
        "args": ["--max-tokens", "8", "--tokenizer=a", "--token", "--verbose"],
    }
    value = {"spec": {"containers": [container]}, "draftTokens": 4, "key": "3f3f"}
    assert masked(value) == value


def test_copies_of_the_object_are_left_out() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    meta = {"name": "pair", "managedFields": [{}], "annotations": annotations}
    assert masked({"metadata": meta}) == {
        "metadata": {"name": "pair", "annotations": {"a": "b"}},
    }


def test_value_of_a_short_or_ordinary_literal_stays_in_logs() -> None:
    env = [{"name": name, "value": value} for name, value in {"KEY": "12345678", "T": "a"}.items()]
    objects = [body_of("Pod", "pair-0", spec={"containers": [{"env": env}]})]
    logs = {"pair-0": "listens on port 12345678\n"}
    packed = files(Material({}, {}, objects, Snapshot(logs=logs)))
    assert packed["logs/pair-0.log"] == b"listens on port 12345678\n"
    assert b"12345678" not in packed["objects/lab/pod-pair-0.yaml"]


def test_logs_are_bounded_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TEXT_BYTES", 10)
    snapshot = Snapshot(logs={"a": "12345678", "b": "123", "c": "12"})
    packed = files(Material({}, {}, [], snapshot))
    assert [path for path in packed if path.startswith("logs/")] == ["logs/a.log", "logs/c.log"]
    assert b"logs/b.log is not included" in packed[NOT_INCLUDED]


class Reported(Cluster):
    """Serves logs by pod, container and whether they are of the previous run."""

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
    """The files of an archive, by their paths below its only folder."""
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
