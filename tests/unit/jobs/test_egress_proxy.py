"""The egress proxy refuses sources that lead to addresses inside the cluster."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from specdec.api.networks import Networks
from specdec.jobs import result
from unit.jobs.checkpoints import run, visible
from unit.jobs.fake_servers import Handler, Server, serving
from unit.jobs.termination import read_result
from unit.jobs.test_sources import FILES, REMOTES

# run() allows only the address of the tests' servers, so the proxy must refuse this address.
CLOSED = "127.0.0.2"
KEYS = b'{"AccessKeyId": "AKIASTOLEN", "SecretAccessKey": "stolen"}'


class Metadata(Server):
    """A metadata service that answers every request with its keys."""

    @override
    def answer(self, handler: Handler) -> None:
        handler.respond(200, KEYS, X_Keys="AKIASTOLEN", ETag='"1"')


class Hostile(Server):
    """A source that redirects every request, or answers with content that no message may quote."""

    redirect_to = ""
    status = 302
    body = b""
    headers: dict[str, str] = {}  # noqa: RUF012 - set by a test on its own instance

    @override
    def answer(self, handler: Handler) -> None:
        more = {"Location": self.redirect_to} if self.redirect_to else {}
        handler.respond(self.status, self.body, **more, **self.headers)


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with serving(Metadata({}), CLOSED) as server:
        yield server


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with serving(Hostile({})) as server:
        yield server


def source(kind: str, server: Server) -> dict[str, Any]:
    """Return a source of the given kind that refers to the given server."""
    return {
        "huggingFace": {"huggingFace": {"repo": "acme/model", "endpoint": server.url}},
        "s3": {"s3": {"uri": "s3://bucket/a", "endpoint": server.url}},
        "gcs": {"gcs": {"uri": "gs://bucket/a", "endpoint": server.url}},
        "oci": {"oci": {"reference": f"{server.host}/acme/model:v1"}},
        "ngc": {"ngc": {"resource": "acme/lab/model:1", "endpoint": server.url}},
    }[kind]


KINDS = ["huggingFace", "s3", "gcs", "oci", "ngc"]


def check_refused(volume: Path, metadata: Server) -> str:
    """Check that the server got no request and no file was fetched; return the message."""
    error = read_result()["error"]
    assert error["reason"] == "AddressRefused", error
    assert "AKIASTOLEN" not in json.dumps(read_result())
    assert metadata.requests == []
    assert visible(volume) == []
    return str(error["message"])


@pytest.mark.parametrize("kind", KINDS)
def test_redirect_to_a_metadata_service_is_not_followed(
    kind: str, hostile: Hostile, metadata: Metadata, volume: Path
) -> None:
    hostile.redirect_to = f"{metadata.url}/latest/meta-data/iam/security-credentials/node"
    assert run({"target": source(kind, hostile)}, volume) == result.PERMANENT
    message = check_refused(volume, metadata)
    assert f"leads to {CLOSED}, which is a loopback address" in message
    assert "fetch.allowedNetworks" in message


@pytest.mark.parametrize("kind", KINDS)
def test_internal_endpoint_is_refused(kind: str, metadata: Metadata, volume: Path) -> None:
    assert run({"target": source(kind, metadata)}, volume) == result.PERMANENT
    check_refused(volume, metadata)


@pytest.mark.parametrize("kind", REMOTES)
def test_file_behind_an_internal_redirect_is_not_downloaded(
    kind: str, metadata: Metadata, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redirect(handler: Handler, name: str, data: bytes) -> None:
        handler.respond(307, Location=f"{metadata.url}/{name}")

    monkeypatch.setattr(Handler, "file", redirect)
    with ExitStack() as stack:
        remote = REMOTES[kind](stack)
        assert run({"target": remote.source}, volume) == result.PERMANENT
    check_refused(volume, metadata)


def test_internal_login_address_of_a_registry_is_refused(
    hostile: Hostile, metadata: Metadata, volume: Path
) -> None:
    hostile.status = 401
    hostile.headers = {"WWW_Authenticate": f'Bearer realm="{metadata.url}/token",service="r"'}
    assert run({"target": source("oci", hostile)}, volume) == result.PERMANENT
    check_refused(volume, metadata)


@pytest.mark.parametrize("address", ["127.0.0.2", "169.254.169.254", "10.96.0.1", "fe80::1"])
@pytest.mark.parametrize("kind", KINDS)
def test_name_of_an_internal_address_is_refused(
    kind: str, address: str, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, {"models.example": [address]})
    server = Metadata({}, url="http://models.example:1")
    assert run({"target": source(kind, server)}, volume) == result.PERMANENT
    assert "leads to models.example, which is" in check_refused(volume, server)
    assert "models.example" in names.lookups


def test_connection_uses_the_checked_address_of_a_name_that_changes(
    metadata: Metadata, hostile: Hostile, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the first address is allowed; later lookups return the metadata service."""
    port = hostile.url.rpartition(":")[2]
    names = Names(monkeypatch, {"models.example": ["127.0.0.1", CLOSED]})
    hostile.status = 404
    server = Metadata({}, url=f"http://models.example:{port}")
    assert run({"target": source("ngc", server)}, volume) == result.PERMANENT
    assert read_result()["error"]["reason"] == "SourceNotFound"
    assert names.lookups.count("models.example") == len(hostile.requests) == 1
    assert metadata.requests == []


class Names:
    """A fake resolver: each lookup of a name returns its next address, and the last repeats."""

    def __init__(self, patch: pytest.MonkeyPatch, answers: dict[str, list[str]]) -> None:
        self.lookups: list[str] = []
        real = socket.getaddrinfo

        def resolve(host: Any, *rest: Any, **more: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else str(host)
            if name not in answers:
                return real(host, *rest, **more)
            self.lookups.append(name)
            addresses = answers[name]
            address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
            return real(address, *rest, **more)

        patch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize("status", [200, 403, 404, 418, 500])
@pytest.mark.parametrize("kind", KINDS)
def test_content_of_a_server_is_never_quoted(
    kind: str, status: int, hostile: Hostile, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.jobs.object_store._RETRY", {"max_retries": 0})
    hostile.status, hostile.body = status, KEYS
    hostile.headers = {"X_Error_Message": "AKIASTOLEN", "X_Error_Code": "AKIASTOLEN"}
    assert run({"target": source(kind, hostile)}, volume) != 0
    text = json.dumps(read_result())
    assert "error" in read_result()
    assert "STOLEN" not in text.upper()


def test_internal_proxy_is_refused(
    metadata: Metadata, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", metadata.url)
    server = Metadata({}, url="http://models.example")
    assert run({"target": source("ngc", server)}, volume) == result.PERMANENT
    check_refused(volume, metadata)


def test_internal_address_behind_a_proxy_is_refused(
    hostile: Hostile, metadata: Metadata, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", hostile.url)
    assert run({"target": source("ngc", metadata)}, volume) == result.PERMANENT
    check_refused(volume, metadata)
    assert hostile.requests == []


def test_allowed_network_is_reachable(volume: Path) -> None:
    with ExitStack() as stack:
        remote = REMOTES["ngc"](stack)
        assert run({"target": remote.source}, volume, allowed=()) == result.PERMANENT
        assert read_result()["error"]["reason"] == "AddressRefused"
        assert run({"target": remote.source}, volume, allowed=("127.0.0.0/8",)) == 0
    digest = read_result()["models"]["target"]["digest"]
    assert {p.name for p in (volume / "checkpoints" / digest).iterdir()} == set(FILES)


REFUSED = [
    *("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "169.254.169.254", "169.254.1.1"),  # noqa: S104
    *("fe80::1", "fe80::1%eth0", "224.0.0.1", "239.1.1.1", "ff02::1", "255.255.255.255"),
    *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.0.1"),
    *("fc00::1", "fd12:3456::1", "fd00:ec2::254", "168.63.129.16", "240.0.0.1", "198.18.0.1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1"),
    *("2002:7f00:1::", "2002:a00:1::1", "2001:0:a00:1::", "::ffff:0:127.0.0.1"),
]


@pytest.mark.parametrize("address", REFUSED)
def test_internal_addresses_are_refused(address: str) -> None:
    assert Networks().refusal(address)


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "2606:4700::1", "::ffff:8.8.8.8", "172.32.0.1", "64:ff9b::808:808"],
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert Networks().refusal(address) is None


def test_wide_network_allows_private_addresses_but_not_those_of_the_node() -> None:
    everything = Networks.parse(["0.0.0.0/0", "::/0"])
    assert everything.refusal("10.0.0.1") is None
    assert everything.refusal("fd12::1") is None
    closed = ["127.0.0.1", "169.254.169.254", "169.254.1.1", "fe80::1", "::1", "0.0.0.0"]  # noqa: S104
    cloud = ["168.63.129.16", "100.100.100.200", "fd00:ec2::254"]
    assert all(everything.refusal(address) for address in [*closed, *cloud])


def test_explicit_network_allows_its_addresses() -> None:
    named = Networks.parse(["169.254.20.10/32", "127.0.0.1"])
    assert named.refusal("169.254.20.10") is None
    assert named.refusal("127.0.0.1") is None
    assert named.refusal("169.254.169.254") == "the metadata service of a cloud"
    assert Networks.parse(["169.254.0.0/16"]).refusal("169.254.169.254")
