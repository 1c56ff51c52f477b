"""The command `specdec check`: its lines, its JSON and its exit status."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from typing_extensions import override

from specdec.tools.cli.app import app
from support.documents import definition
from support.fake_api import Api, kubeconfig
from unit.inspect.test_checks import GOOD, operator


class Cluster(Api):
    """Answers reviews of permissions, and denies the permissions in `denied`."""

    denied: frozenset[tuple[str, str]] = frozenset()

    @override
    def write(self, method: str, address: str, body: Any) -> tuple[int, bytes]:
        assert (method, body["kind"]) == ("POST", "SelfSubjectAccessReview")
        asked = body["spec"]["resourceAttributes"]
        assert asked["namespace"] == "lab"
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        allowed = (asked["verb"], resource) not in self.denied
        return 201, json.dumps({**body, "status": {"allowed": allowed}}).encode()


@pytest.fixture
def api() -> Cluster:
    api = Cluster()
    name = "speculativemodels.specdec.dev"
    api.objects |= {
        "/version": {"gitVersion": "v1.34.1"},
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}": definition(),
        "/apis": {"groups": [{"name": "specdec.dev"}]},
        "/apis/specdec.dev/v1alpha1": {"resources": [{"kind": "SpeculativeModel"}]},
        "/apis/apps/v1/deployments": [operator()],
        "/api/v1/nodes": GOOD.nodes,
        "/apis/storage.k8s.io/v1/storageclasses": GOOD.storage_classes,
    }
    return api


def specdec(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", *arguments])


@pytest.mark.usefixtures("login")
def test_command_prints_a_line_for_each_check() -> None:
    result = specdec()
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert len([first for first, *_ in lines if first == "ok"]) == 7
    assert "Kubernetes v1.34.1" in result.stdout


def test_problem_exits_with_1_and_json_is_one_object(api: Cluster, login: Path) -> None:
    api.objects["/apis/apps/v1/deployments"] = []
    api.denied = frozenset({("get", "pods/proxy"), ("create", "speculativemodels")})
    result = specdec("--json")
    assert result.exit_code == 1
    output = json.loads(result.stdout)
    assert (output["format"], output["namespace"]) == ("specdec.dev/check/v1", "lab")
    checks = {item["name"]: item for item in output["checks"]}
    assert checks["operator"]["result"] == "problem"
    assert "create speculativemodels.specdec.dev (for apply)" in checks["rights"]["message"]
    assert "get pods/proxy (for top)" in checks["rights"]["message"]
    lines = specdec().stdout.splitlines()
    assert len(lines) == len(checks)
    assert "; to resolve: install the chart" in lines[2]


def test_operator_of_one_namespace_is_enough(api: Cluster, login: Path) -> None:
    forbidden = (403, "User cannot list deployments at the cluster scope")
    api.errors["/apis/apps/v1/deployments"] = forbidden
    api.errors["/api/v1/nodes"] = forbidden
    api.errors["/apis/storage.k8s.io/v1/storageclasses"] = forbidden
    api.objects["/apis/apps/v1/namespaces/operators/deployments"] = [operator()]
    result = specdec("--operator-namespace", "operators", "--json")
    assert result.exit_code == 0, result.output
    results = {item["name"]: item["result"] for item in json.loads(result.stdout)["checks"]}
    assert results["operator"] == "ok"
    assert results["GPUs"] == results["storage"] == "warning"


def test_unreachable_server_exits_with_3(login: Path) -> None:
    kubeconfig(login, "http://127.0.0.1:9")
    result = specdec()
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize("option", ["--namespace", "--operator-namespace"])
def test_invalid_name_is_one_sentence(option: str, login: Path) -> None:
    result = specdec(option, "a/b")
    assert result.exit_code == 2
    assert f"{option} is 'a/b'" in result.stderr
