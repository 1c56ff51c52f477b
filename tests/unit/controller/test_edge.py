"""Owners, probe, settings, paths, errors, events and the start of the process."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from kubernetes.aio.client.exceptions import ApiException
from pydantic import ValidationError

from cluster.processes import DEADLINE_SECONDS
from specdec.api.conditions import Condition, Transition, Type
from specdec.api.reasons import EngineReason
from specdec.cluster import Conflict, Missing, Rejected, Transient, convert, path
from specdec.cluster.events import event_of
from specdec.controller import handlers, probe
from specdec.controller.children import owner_keys
from specdec.controller.queue import Health
from specdec.controller.settings import Settings


def test_child_belongs_to_every_owner_of_our_kind() -> None:
    references = [
        {"apiVersion": "specdec.dev/v1alpha1", "kind": "SpeculativeModel", "name": "one"},
        {"apiVersion": "specdec.dev/v1alpha1", "kind": "SpeculativeModel", "name": "two"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "three"},
        {"apiVersion": "other.dev/v1", "kind": "SpeculativeModel", "name": "four"},
    ]
    meta = {"namespace": "ns", "ownerReferences": references}
    assert owner_keys(meta) == [("ns", "one"), ("ns", "two")]
    assert owner_keys({"namespace": "ns"}) == []


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        ({"specdec.dev/model": "one"}, [("ns", "one")]),
        (
            {"models.specdec.dev/one": "true", "models.specdec.dev/two": "true"},
            [("ns", "one"), ("ns", "two")],
        ),
        ({"app": "one", "specdec.dev/engine": "0123"}, []),
    ],
)
def test_child_without_owners_belongs_to_resources_in_its_labels(
    labels: dict[str, str], keys: list[tuple[str, str]]
) -> None:
    assert owner_keys({"namespace": "ns", "labels": labels}) == keys
    reference = {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "name": "one",
    }
    both = {"namespace": "ns", "labels": labels, "ownerReferences": [reference]}
    assert owner_keys(both) == (keys or [("ns", "one")])


def test_probe_detects_dead_queue_stuck_reconcile_and_missing_resync() -> None:
    assert probe.check(Health(1, 2), 3, 600) == {
        "idle": 1,
        "longestReconcile": 2,
        "sinceResync": 3,
    }
    for health, since, pattern in (
        (Health(float("inf"), 0), 0, "queue"),
        (Health(61, 0), 0, "queue"),
        (Health(0, 601), 0, "reconcile"),
        (Health(0, 0), 1801, "resync"),
    ):
        with pytest.raises(probe.UnhealthyError, match=pattern):
            probe.check(health, since, 600)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_NAMESPACES", "a, b,")
    monkeypatch.setenv("SPECDEC_OPERATOR_IMAGE", "operator:1")
    assert Settings().namespaces == ("a", "b")
    assert Settings().images.operator == "operator:1"
    monkeypatch.setenv("SPECDEC_NAMESPACES", "")
    assert Settings().namespaces == ()
    monkeypatch.setenv("SPECDEC_WORKERS", "0")
    with pytest.raises(ValidationError, match="workers"):
        Settings()
    monkeypatch.delenv("SPECDEC_WORKERS")
    monkeypatch.setenv("SPECDEC_FETCH_ALLOWED_NETWORKS", "10.20.0.0/16, fd12::/16")
    assert Settings().images.fetch_networks == ("10.20.0.0/16", "fd12::/16")
    monkeypatch.setenv("SPECDEC_FETCH_ALLOWED_NETWORKS", "10.20.0.0/66")
    with pytest.raises(ValidationError, match="fetch_allowed_networks"):
        Settings()
    monkeypatch.delenv("SPECDEC_FETCH_ALLOWED_NETWORKS")
    monkeypatch.setenv("SPECDEC_EXCLUDED_NAMESPACES", "kube-system,vault")
    assert Settings().images.excluded_namespaces == ("kube-system", "vault")
    monkeypatch.setenv("SPECDEC_LEASE", "system/operator")
    assert Settings().lease_seconds == 15
    monkeypatch.setenv("SPECDEC_LEASE", "operator")
    with pytest.raises(ValidationError, match="lease"):
        Settings()


def test_kopf_leaves_no_trace_in_objects() -> None:
    settings = kopf.OperatorSettings()
    handlers.configure(settings, namespaced=False)
    assert settings.persistence.finalizer == "specdec.dev/unused"
    assert not settings.posting.enabled
    assert not settings.scanning.disabled
    handlers.configure(settings, namespaced=True)
    assert settings.scanning.disabled


def test_paths_of_core_and_group_resources() -> None:
    assert path("v1", "ConfigMap", "ns", "a") == "/api/v1/namespaces/ns/configmaps/a"
    assert path("batch/v1", "Job", "ns") == "/apis/batch/v1/namespaces/ns/jobs"
    everywhere = path("specdec.dev/v1alpha1", "SpeculativeModel", None)
    assert everywhere == "/apis/specdec.dev/v1alpha1/speculativemodels"
    with pytest.raises(KeyError):
        path("v1", "Namespace", "ns")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, Transient),
        (403, Rejected),
        (404, Missing),
        (409, Conflict),
        (422, Rejected),
        (429, Transient),
        (500, Transient),
        (503, Transient),
        (0, Transient),
    ],
)
def test_response_becomes_an_error_with_the_servers_message(status: int, kind: type) -> None:
    error = ApiException(status=status, reason="Reason")
    error.body = json.dumps({"kind": "Status", "message": "the server message"})
    converted = convert(error, "Job a")
    assert type(converted) is kind
    assert "the server message" in str(converted)
    error.body = "<html>"
    assert "Reason" in str(convert(error, "Job a"))


def test_missing_response_is_transient_and_has_a_message() -> None:
    for error in (TimeoutError(), aiohttp.ClientConnectionError("refused"), OSError("broken")):
        converted = convert(error, "Job a")
        assert type(converted) is Transient
        assert "Job a: " in str(converted)
        assert not str(converted).endswith(": ")


def test_event_names_the_resource_and_fits_the_limits() -> None:
    body: dict[str, Any] = {
        "apiVersion": "specdec.dev/v1alpha1",
        "kind": "SpeculativeModel",
        "metadata": {"name": "pair", "namespace": "ns", "uid": "u"},
    }
    condition = Condition(Type.ENGINES_READY, "False", EngineReason.BUILD_FAILED, "ä" * 2000)
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    event = event_of(body, Transition(condition, warning=True), at)
    assert event["eventTime"] == "2026-01-02T03:04:05.000006Z"
    assert event["type"] == "Warning"
    assert event["reportingController"] == "specdec.dev/operator"
    assert event["regarding"]["uid"] == "u"
    assert len(event["note"].encode()) <= 1024
    later = event_of(body, Transition(condition, warning=True), at.replace(second=6))
    assert later["metadata"]["name"] > event["metadata"]["name"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SPECDEC_WORKERS": "0"}, "SPECDEC_WORKERS is '0'"),
        ({"KUBECONFIG": "/nonexistent"}, "no login to a cluster"),
    ],
)
def test_failed_start_logs_one_sentence(
    environment: dict[str, str], message: str, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "specdec.controller"]
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPECDEC_METRICS_PORT": "0"}
    base |= {"SPECDEC_HEALTH_PORT": "0"}
    process = subprocess.run(
        argv,
        env=base | environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("variables", "server"),
    [
        (("10.96.0.1", "443"), "https://10.96.0.1:443"),
        (("fd00::1", "6443"), "https://[fd00::1]:6443"),
        ((), "https://kubernetes.default.svc"),
    ],
)
async def test_login_in_a_pod_needs_no_dns(
    variables: tuple[str, ...], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Login uses the address that the kubelet sets, so a network policy may forbid DNS."""
    account = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="token")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: account)
    for name in ("HOST", "PORT"):
        monkeypatch.delenv(f"KUBERNETES_SERVICE_{name}", raising=False)
    for name, value in zip(("HOST", "PORT"), variables, strict=False):
        monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", value)
    login: Any = handlers.login
    info = await login()
    assert (info.server, info.token) == (server, "token")


async def test_login_without_a_service_account_uses_the_kubeconfig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = kopf.ConnectionInfo(server="https://127.0.0.1:6443")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: None)
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: person)
    login: Any = handlers.login
    assert await login() == person
