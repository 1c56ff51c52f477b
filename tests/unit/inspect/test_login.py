"""Login with a kubeconfig: its context and namespace, and messages about an invalid file."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specdec.tools.cli.app import app
from support.fake_api import MODELS, Api, kubeconfig


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def error_of(result: Result, status: int) -> str:
    """Return the single line on stderr."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("specdec: ")
    return line


def test_token_and_namespace_come_from_the_context(api: Api, login: Path) -> None:
    api.objects[f"{MODELS}/namespaces/lab/speculativemodels"] = []
    result = run("status")
    assert result.exit_code == 0, result.output
    assert result.stderr == "no SpeculativeModel in namespace lab\n"
    assert api.tokens == {"Bearer hush"}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [(["-n", "other"], "/namespaces/other"), (["-A"], ""), (["--context", "here"], None)],
)
def test_options_select_another_namespace(
    api: Api, login: Path, arguments: list[str], path: str | None
) -> None:
    path = "/namespaces/lab" if path is None else path
    api.objects[f"{MODELS}{path}/speculativemodels"] = []
    assert run("status", *arguments).exit_code == 0
    assert [requested for requested, _ in api.seen] == [f"{MODELS}{path}/speculativemodels"]


def test_context_without_a_namespace_means_default(api: Api, login: Path) -> None:
    address = next(line for line in login.read_text().splitlines() if "server:" in line)
    kubeconfig(login, address.split(": ", 1)[1], namespace=None)
    api.objects[f"{MODELS}/namespaces/default/speculativemodels"] = []
    assert run("status").exit_code == 0


@pytest.mark.parametrize("command", [("status",), ("status", "pair"), ("top", "--once")])
def test_missing_kubeconfig_is_one_sentence(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert "set KUBECONFIG" in error_of(run(*command), 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not valid"),
        ("{", "is not valid"),
        ("just text", "is not valid"),
        ("contexts: []\nclusters: []\nusers: []\n", "its current context cannot be used"),
        (
            "current-context: a\ncontexts: [{name: b, context: {cluster: c}}]\nclusters: []\n",
            "it has b: select one with --context",
        ),
        (
            # The library's own message would quote the entry, which has the token.
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: x}}]\nusers: [{name: u, token: hush}]\n",
            "cannot be used",
        ),
    ],
)
def test_invalid_kubeconfig_is_reported_without_its_contents(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    line = error_of(run("status"), 2)
    assert message in line
    assert "hush" not in line


def test_unknown_context_lists_the_known_ones(login: Path) -> None:
    line = error_of(run("status", "--context", "there"), 2)
    assert "context there cannot be used; it has here" in line


def test_invalid_certificates_are_reported(login: Path) -> None:
    (login.parent / "ca.pem").write_text("no certificate")
    text = login.read_text().replace("http://", "https://")
    login.write_text(text.replace("server:", "certificate-authority: ca.pem\n    server:"))
    assert "certificates" in error_of(run("status"), 2)


@pytest.mark.parametrize(
    ("code", "server_message", "status", "message"),
    [
        (401, "Unauthorized", 1, "log in again"),
        (403, 'User "me" cannot list resource "speculativemodels"', 1, 'User "me" cannot list'),
        (404, "the server could not find the requested resource", 2, "install the operator first"),
        (503, "etcd is down", 3, "etcd is down"),
    ],
)
def test_refusal_is_reported_with_the_servers_message(
    api: Api, login: Path, code: int, server_message: str, status: int, message: str
) -> None:
    api.errors[f"{MODELS}/namespaces/lab/speculativemodels"] = (code, server_message)
    assert message in error_of(run("status"), status)


def test_unreachable_server_exits_with_3(login: Path) -> None:
    kubeconfig(login, "http://127.0.0.1:9")
    assert "did not answer" in error_of(run("status"), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "a/b"], "NAME is 'a/b'"),
        (["status", "-n", "../kube-system"], "--namespace is '../kube-system'"),
        (["status", "pair", "-A"], "--all-namespaces excludes NAME"),
        (["top", "Pair?"], "NAME is 'Pair?'"),
        (["top", "--interval", "0.5"], "--interval is 0.5; set it to 1 to 3600 seconds"),
        (["top", "--interval", "nan"], "--interval is nan"),
    ],
)
def test_invalid_options_send_no_request(
    api: Api, login: Path, arguments: list[str], message: str
) -> None:
    assert message in error_of(run(*arguments), 2)
    assert api.seen == []
