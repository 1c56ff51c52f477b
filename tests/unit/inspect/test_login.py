"""A person's login: the kubeconfig's context and namespace, and what is wrong with a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specdec.cli.app import app
from unit.inspect.fake_api import MODELS, Api, kubeconfig


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def said(result: Result, status: int) -> str:
    """The one sentence on stderr."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("specdec: ")
    return line


def test_token_and_namespace_are_those_of_the_context(api: Api, login: Path) -> None:
    api.objects[f"{MODELS}/namespaces/lab/speculativemodels"] = []
    result = run("status")
    assert result.exit_code == 0, result.output
    assert result.stderr == "no SpeculativeModel in namespace lab\n"
    assert api.tokens == {"Bearer hush"}


@pytest.mark.parametrize(
    ("arguments", "place"),
    [(["-n", "other"], "/namespaces/other"), (["-A"], ""), (["--context", "here"], None)],
)
def test_options_choose_another_place(
    api: Api, login: Path, arguments: list[str], place: str | None
) -> None:
    place = "/namespaces/lab" if place is None else place
    api.objects[f"{MODELS}{place}/speculativemodels"] = []
    assert run("status", *arguments).exit_code == 0
    assert [path for path, _ in api.seen] == [f"{MODELS}{place}/speculativemodels"]


def test_a_context_without_a_namespace_means_default(api: Api, login: Path) -> None:
    address = next(line for line in login.read_text().splitlines() if "server:" in line)
    kubeconfig(login, address.split(": ", 1)[1], namespace=None)
    api.objects[f"{MODELS}/namespaces/default/speculativemodels"] = []
    assert run("status").exit_code == 0


@pytest.mark.parametrize("command", [("status",), ("status", "pair"), ("top", "--once")])
def test_without_a_kubeconfig_there_is_one_sentence(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    assert "set KUBECONFIG" in said(run(*command), 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read as one"),
        ("{", "cannot be read as one"),
        ("just words", "cannot be read as one"),
        ("contexts: []\nclusters: []\nusers: []\n", "its current context cannot be used"),
        (
            "current-context: a\ncontexts: [{name: b, context: {cluster: c}}]\nclusters: []\n",
            "it has b: choose one by --context",
        ),
        (
            # The library's own words would repeat the entry.
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: x}}]\nusers: [{name: u, token: hush}]\n",
            "cannot be used",
        ),
    ],
)
def test_a_broken_kubeconfig_is_said_without_what_it_holds(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    line = said(run("status"), 2)
    assert words in line
    assert "hush" not in line


def test_an_unknown_context_is_told_the_known_ones(login: Path) -> None:
    line = said(run("status", "--context", "there"), 2)
    assert "context there cannot be used; it has here" in line


def test_certificates_that_are_none_are_named(login: Path) -> None:
    (login.parent / "ca.pem").write_text("no certificate")
    text = login.read_text().replace("http://", "https://")
    login.write_text(text.replace("server:", "certificate-authority: ca.pem\n    server:"))
    assert "certificates" in said(run("status"), 2)


@pytest.mark.parametrize(
    ("code", "words", "status", "told"),
    [
        (401, "Unauthorized", 1, "log in again"),
        (403, 'User "me" cannot list resource "speculativemodels"', 1, 'User "me" cannot list'),
        (404, "the server could not find the requested resource", 2, "install the operator first"),
        (503, "etcd is away", 3, "etcd is away"),
    ],
)
def test_what_the_server_refuses_is_its_own_sentence(
    api: Api, login: Path, code: int, words: str, status: int, told: str
) -> None:
    api.errors[f"{MODELS}/namespaces/lab/speculativemodels"] = (code, words)
    assert told in said(run("status"), status)


def test_nobody_there_is_3(login: Path) -> None:
    kubeconfig(login, "http://127.0.0.1:9")
    assert "did not answer" in said(run("status"), 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "a/b"], "NAME is 'a/b'"),
        (["status", "-n", "../kube-system"], "--namespace is '../kube-system'"),
        (["status", "pair", "-A"], "--all-namespaces goes without"),
        (["top", "Pair?"], "NAME is 'Pair?'"),
        (["top", "--interval", "0.5"], "--interval is 0.5; set it to 1 to 3600 seconds"),
        (["top", "--interval", "nan"], "--interval is nan"),
    ],
)
def test_bad_options_never_reach_the_server(
    api: Api, login: Path, arguments: list[str], words: str
) -> None:
    assert words in said(run(*arguments), 2)
    assert api.seen == []
