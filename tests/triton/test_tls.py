"""A real server with TLS on gRPC: which clients get answers, and what remains unencrypted."""

import asyncio
import json
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.processes import DEADLINE_SECONDS
from specdec.images.serving import renewal
from specdec.jobs.benchmark import benchmark
from specdec.jobs.result import JobError
from specdec.jobs.verify import VerificationPlan, measured
from specdec.tools.cli.app import app
from specdec.triton.launch import Tls
from support import certificates
from support.certificates import Certificates, Pair
from support.triton_server import Server, ServerError
from triton.conftest import Serve

PROMPT = "def read_lines(path):\n"
ASK = json.dumps({"text_input": PROMPT, "max_tokens": 4}).encode()
GENERATE = ("generate", "--prompt", PROMPT, "--max-tokens", "8")


def run(server: Server, *arguments: str) -> tuple[int, str, str]:
    command, *rest = arguments
    result = CliRunner().invoke(app, [command, "--url", server.url, *rest])
    return result.exit_code, result.stdout, result.stderr


def verified(
    server: Server, tls: dict[str, str] | None, *, loop: bool = False, compares: bool = True
) -> dict[str, Any]:
    plan = {
        "planHash": "0" * 16,
        "kind": "bls",
        "compares": compares,
        "clientLoop": loop,
        "server": server.url,
        "draftTokens": 4,
        "maxPrompts": 3,
        "maxTokens": 8,
        "tls": tls,
    }
    return asyncio.run(measured(VerificationPlan.parse(json.dumps(plan))))


def own(authority: str, pair: Pair) -> dict[str, str]:
    """Return the TLS part of a Job's plan for servers that require client certificates."""
    files = {"certificate": pair.certificate, "key": pair.key}
    return {"authority": authority, "clientSecret": "verifier", **files}


def http(server: Server, path: str, body: bytes | None = None) -> int:
    url = f"http://127.0.0.1:{server.http_port}{path}"
    try:
        with urllib.request.urlopen(url, data=body, timeout=DEADLINE_SECONDS) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_clients_that_trust_the_authority_get_answers(
    encrypted: Server, server: Server, made: Certificates
) -> None:
    trusted = ("--tls", "--ca", made.authority)
    status, text, errors = run(encrypted, *GENERATE, *trusted)
    assert status == 0, errors
    assert text == run(server, *GENERATE)[1] != ""
    status, output, _ = run(encrypted, "verify", "--limit", "3", "--max-tokens", "8", *trusted)
    assert status == 0, output


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ((), "add --tls if the server requires TLS"),
        (("--tls",), "check the CA (--ca)"),
    ],
    ids=["in-the-clear", "trusts-others"],
)
def test_clients_that_do_not_trust_it_get_none(
    how: tuple[str, ...], expected: str, encrypted: Server
) -> None:
    status, text, errors = run(encrypted, *GENERATE, *how)
    assert (status, text) == (3, "")
    assert expected in errors
    status, _, errors = run(encrypted, "verify", "--limit", "1", *how)
    assert status == 3
    assert expected in errors


def test_http_serves_health_alone(encrypted: Server) -> None:
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert http(encrypted, path) == 200
    for path in ("", "/models/ensemble", "/models/ensemble/config", "/models/stats", "/logging"):
        assert http(encrypted, f"/v2{path}") == 403, path
    for path in ("generate", "generate_stream", "infer"):
        assert http(encrypted, f"/v2/models/ensemble/{path}", ASK) == 403, path


def test_metrics_and_with_them_the_drain_stay_in_the_clear(encrypted: Server) -> None:
    assert "specdec_requests_in_flight{" in encrypted.get_metrics()


@pytest.mark.parametrize("loop", [False, True])
def test_the_verification_job_is_answered_over_tls(
    loop: bool, encrypted: Server, made: Certificates
) -> None:
    result = verified(encrypted, {"authority": made.authority}, loop=loop)
    assert (result["prompts"], result["matched"], result["active"]) == (3, 3, True)


def test_the_benchmark_job_is_answered_over_tls(
    encrypted: Server, made: Certificates, tmp_path: Path
) -> None:
    plan = {
        "planHash": "0" * 16,
        "server": encrypted.url,
        "draftTokens": 4,
        "kind": "bls",
        "model": "tensorrt_llm_bls",
        "concurrency": [1],
        "requests": 2,
        "outputTokens": 8,
        "maxErrorPercent": 0,
        "report": "report.json",
        "tls": {"authority": made.authority},
    }
    (level,) = benchmark(plan, tmp_path)["benchmark"]["levels"]
    assert level["speculative"]["errors"] == 0


def test_a_job_that_trusts_another_authority_reports_it(encrypted: Server, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the TLS connection to") as caught:
        verified(encrypted, {"authority": str(tmp_path / "absent")})
    assert (caught.value.reason, caught.value.permanent) == ("ServerUnreachable", False)


def served(server: Server) -> str:
    """Return the certificate that a server presents, as PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = server.url.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"")


def test_a_renewed_certificate_needs_a_restart_and_is_reported(
    serve: Serve, made: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process beside the server reports the renewal, and the operator replaces the pod."""
    (tmp_path / "certificates").mkdir()
    renewed = certificates.make(tmp_path / "certificates").server
    own = Pair(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    shutil.copy(made.server.certificate, own.certificate)
    shutil.copy(made.server.key, own.key)
    memory, files, tls = (
        tmp_path / "memory",
        [Path(own.certificate)],
        Tls(own.certificate, own.key),
    )
    with serve({}, tls=tls) as first:
        last = renewal.check(memory, files, "")
        assert served(first) == Path(made.server.certificate).read_text()
        shutil.copy(renewed.certificate, own.certificate)
        shutil.copy(renewed.key, own.key)
        renewal.check(memory, files, last)
        certificate = json.loads(capsys.readouterr().out.splitlines()[-1])["certificate"]
        assert certificate["started"] != certificate["now"]
        assert served(first) == Path(made.server.certificate).read_text(), "it is read once"
    with serve({}, tls=tls) as second:
        assert served(second) == Path(renewed.certificate).read_text()


def test_with_an_authority_for_clients_only_theirs_get_through(
    serve: Serve, made: Certificates
) -> None:
    tls = Tls(made.server.certificate, made.server.key, made.authority)
    trusted = (*GENERATE, "--tls", "--ca", made.authority)
    with serve({}, tls=tls) as server:
        assert run(server, *trusted)[0] == 3
        for pair, expected in (
            (made.client, "unknown model"),
            (made.stranger, "the TLS connection"),
        ):
            asked = (*trusted, "--cert", pair.certificate, "--key", pair.key)
            assert expected in run(server, *asked)[2]
            with pytest.raises(JobError, match=expected):
                verified(server, own(made.authority, pair), compares=False)


def test_without_the_authority_for_clients_no_client_gets_through(
    serve: Serve, made: Certificates, tmp_path: Path
) -> None:
    tls = Tls(made.server.certificate, made.server.key, str(tmp_path / "absent"))
    asked = (*GENERATE, "--tls", "--ca", made.authority)
    with serve({}, tls=tls) as server:
        own_certificate = ("--cert", made.client.certificate, "--key", made.client.key)
        for how in ((), own_certificate):
            assert "the TLS connection" in run(server, *asked, *how)[2]


def test_without_its_key_a_server_does_not_start(
    serve: Serve, made: Certificates, tmp_path: Path
) -> None:
    tls = Tls(made.server.certificate, str(tmp_path / "absent"))
    with (
        pytest.raises(ServerError, match="ended with 1"),
        serve({}, tls=tls),
    ):
        pass
