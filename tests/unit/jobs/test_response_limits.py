"""Limits on endless responses and oversized files."""

import contextlib
import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from specdec.jobs import checkpoint_config, download, result, weights
from specdec.jobs.result import JobError
from unit.jobs.checkpoints import run, visible
from unit.jobs.checkpoints import write as checkpoint
from unit.jobs.fake_servers import Catalogue, Handler, Server, serving
from unit.jobs.termination import read_result
from unit.jobs.test_egress_proxy import KINDS, source
from unit.jobs.test_sources import FILES

_SENT = 64 << 20
# The object stores' library follows a redirect without reading its body.
RESPONSES = [
    (kind, status)
    for kind in KINDS
    for status in (200, 401, 302)
    if status != 302 or kind not in ("s3", "gcs")
]


class Endless(Server):
    """Sends an endless body until the client stops reading it."""

    status = 200
    sent = 0
    headers: dict[str, str] = {}  # noqa: RUF012 - set by a test on its own instance

    @override
    def answer(self, handler: Handler) -> None:
        handler.send_response(self.status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        with contextlib.suppress(OSError):
            while self.sent < _SENT:
                handler.wfile.write(b" " * (1 << 20))
                self.sent += 1 << 20


@pytest.fixture
def endless() -> Iterator[Endless]:
    with serving(Endless({})) as server:
        yield server


@pytest.mark.parametrize(("kind", "status"), RESPONSES)
def test_small_response_is_limited_in_size(
    kind: str, status: int, endless: Endless, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads the body of listings, refusals and redirects, up to a limit."""
    monkeypatch.setattr("specdec.jobs.egress_proxy._LISTING_BYTES", 8 << 20)
    monkeypatch.setattr("specdec.jobs.object_store._RETRY", {"max_retries": 0})
    endless.status = status
    endless.headers = {"Location": "/again"} if status == 302 else {}
    tracemalloc.start()
    try:
        assert run({"target": source(kind, endless)}, volume) != 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "error" in read_result()
    # The client reads 8 MiB; the server has sent more, which is in the buffers of the sockets.
    assert endless.sent < _SENT
    assert peak < 40 << 20


def test_token_response_is_limited_in_size(
    endless: Endless, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_API_KEY_TARGET", "key-1")
    assert run({"target": source("ngc", endless)}, volume) == result.TRANSIENT
    assert "the server's response is too large or too slow" in read_result()["error"]["message"]
    assert endless.sent < _SENT


def test_small_response_is_limited_in_time(
    endless: Endless, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.jobs.http_source._RESPONSE_SECONDS", -1.0)
    assert run({"target": source("ngc", endless)}, volume) == result.TRANSIENT
    assert "the server's response is too large or too slow" in read_result()["error"]["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_response_is_not_unpacked(
    kind: str, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gzip can compress 16 MiB to 16 KiB."""
    bomb = gzip.compress(bytes(16 << 20))
    monkeypatch.setattr("specdec.jobs.object_store._RETRY", {"max_retries": 0})

    class Compressed(Server):
        @override
        def answer(self, handler: Handler) -> None:
            handler.respond(200, bomb, Content_Encoding="gzip")

    with serving(Compressed({})) as server:
        tracemalloc.start()
        try:
            assert run({"target": source(kind, server)}, volume) != 0
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "error" in read_result()
    assert peak < 12 << 20


def test_slow_download_is_aborted(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes arrive so slowly that the Job would take days."""
    monkeypatch.setattr(download, "_WINDOW_SECONDS", 0.0)
    monkeypatch.setattr(download, "_MINIMUM_RATE_BYTES", 1 << 40)
    with serving(Catalogue(FILES)) as server:
        ngc = {"ngc": {"resource": "acme/lab/model:1", "endpoint": server.url}}
        assert run({"target": ngc}, volume) == result.TRANSIENT
    error = read_result()["error"]
    assert error["reason"] == "NetworkError"
    assert "KiB a second" in error["message"]
    assert visible(volume) == []


def test_download_over_connections_that_break_early_is_aborted(volume: Path) -> None:
    with serving(Catalogue(FILES, cut=10, cuts=1_000_000)) as server:
        ngc = {"ngc": {"resource": "acme/lab/model:1", "endpoint": server.url}}
        assert run({"target": ngc}, volume) == result.TRANSIENT
        assert len(server.requests) < 10
    assert read_result()["error"]["reason"] == "NetworkError"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer.model"])
def test_oversized_configuration_file_is_not_read(name: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    with (folder / name).open("wb") as file:
        file.truncate(checkpoint_config._LIMIT_BYTES + 1)
    with pytest.raises(JobError, match=f"{name} has 67108865 bytes"):
        checkpoint_config.content(folder / name)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "\xff"])
def test_invalid_json_is_reported_in_one_sentence(text: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(JobError, match=r"config\.json is not JSON"):
        checkpoint_config.read(folder, "config.json")


@pytest.mark.parametrize("index", [{"weight_map": 3}, {"weight_map": {"a": ["b"]}}, {}])
def test_invalid_index_is_reported_in_one_sentence(index: dict[str, Any], tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    with pytest.raises(JobError, match="its index has no valid weight_map"):
        weights.shapes(folder, index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [[], 3, {"siblings": 3}, {"layers": 3}, {"modelFiles": [3]}])
def test_invalid_response_is_reported_in_one_sentence(
    kind: str, body: Any, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.jobs.object_store._RETRY", {"max_retries": 0})

    class Invalid(Server):
        @override
        def answer(self, handler: Handler) -> None:
            handler.respond(200, json.dumps(body).encode())

    with serving(Invalid({})) as server:
        assert run({"target": source(kind, server)}, volume) != 0
    assert read_result()["error"]["reason"] in ("NetworkError", "SourceNotFound")
