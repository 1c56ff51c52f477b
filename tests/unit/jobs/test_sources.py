"""Common behaviour of all remote sources: complete files, resume, and errors in one sentence."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import result
from unit.jobs.checkpoints import config, run, tensors, tokenizer, visible
from unit.jobs.fake_servers import Catalogue, Registry, Server, Store, serving
from unit.jobs.rsa import service_account
from unit.jobs.termination import read_result

WEIGHTS = tensors(b"\1\2" * 40_000)
FILES = {
    "config.json": json.dumps(config()).encode(),
    "tokenizer.json": json.dumps(tokenizer()).encode(),
    "model.safetensors": WEIGHTS,
}
# The source also has these files, which must not be fetched.
BESIDE = {"README.md": b"no", "onnx/model.safetensors": b"no", ".hidden.json": b"no"}


@dataclass
class Remote:
    """A server with a checkpoint, the source that refers to it, and the secrets for access."""

    server: Server
    source: dict[str, Any]
    secrets: dict[str, str]
    weights: str

    def put(self, name: str, data: bytes) -> None:
        """Replace the content of a file on the server."""
        self.server.files[name] = data


def s3(stack: ExitStack) -> Remote:
    files = {f"bucket/models/a/{n}": d for n, d in (FILES | BESIDE).items()}
    files["bucket/models/a2/config.json"] = b"another prefix"
    server = stack.enter_context(serving(Store(files)))
    source = {"s3": {"uri": "s3://bucket/models/a/", "endpoint": server.url}}
    secrets = {"S3_ACCESS_TARGET": "AKIDTEST", "S3_SECRET_TARGET": "s3cret"}
    return Remote(server, source, secrets, "bucket/models/a/model.safetensors")


def gcs(stack: ExitStack) -> Remote:
    files = {f"bucket/m/{n}": d for n, d in (FILES | BESIDE).items()}
    server = stack.enter_context(serving(Store(files)))
    source = {"gcs": {"uri": "gs://bucket/m", "endpoint": server.url}}
    return Remote(
        server, source, {"GCS_KEY_TARGET": service_account()}, "bucket/m/model.safetensors"
    )


def oci(stack: ExitStack) -> Remote:
    server = stack.enter_context(serving(Registry({})))
    for name, data in (FILES | BESIDE).items():
        server.title(name, data)
    source = {"oci": {"reference": f"{server.host}/acme/model:v1"}}
    auths = {server.host: {"username": "me", "password": "pa55word"}}
    secrets = {"OCI_CONFIG_TARGET": json.dumps({"auths": auths})}
    return Remote(server, source, secrets, server.layers[2]["digest"])


def ngc(stack: ExitStack) -> Remote:
    server = stack.enter_context(serving(Catalogue(FILES | BESIDE)))
    source = {"ngc": {"resource": "acme/lab/model:1", "endpoint": server.url}}
    return Remote(server, source, {"NGC_API_KEY_TARGET": "key-1"}, "model.safetensors")


REMOTES = {"s3": s3, "gcs": gcs, "oci": oci, "ngc": ngc}
# What the Authorization header must contain.
PASSWORDS = {"s3": "Credential=AKIDTEST/", "gcs": "Bearer ", "oci": "pa55word", "ngc": "key-1"}


@pytest.fixture(params=REMOTES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def remote(kind: str) -> Iterator[Remote]:
    with ExitStack() as stack:
        yield REMOTES[kind](stack)


def test_checkpoint_is_complete_and_has_no_other_files(remote: Remote, volume: Path) -> None:
    assert run({"target": remote.source}, volume) == 0
    model = read_result()["models"]["target"]
    folder = volume / "checkpoints" / model["digest"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == FILES
    assert model["revision"]
    assert model["bytes"] == sum(map(len, FILES.values()))


def test_equal_content_has_the_same_digest_from_every_source(volume: Path) -> None:
    digests = set()
    with ExitStack() as stack:
        for make in REMOTES.values():
            assert run({"target": make(stack).source}, volume) == 0
            digests.add(read_result()["models"]["target"]["digest"])
    assert len(digests) == 1


def test_second_fetch_downloads_nothing(remote: Remote, volume: Path) -> None:
    assert run({"target": remote.source}, volume) == 0
    before = len(remote.server.gets(remote.weights.rpartition("/")[2]))
    assert run({"target": remote.source}, volume) == 0
    assert len(remote.server.gets(remote.weights.rpartition("/")[2])) == before == 1


def test_broken_download_is_resumed(remote: Remote, volume: Path) -> None:
    remote.server.cut, remote.server.cuts = 50_000, 1
    assert run({"target": remote.source}, volume) == 0
    digest = read_result()["models"]["target"]["digest"]
    assert (volume / "checkpoints" / digest / "model.safetensors").read_bytes() == WEIGHTS
    spans = remote.server.gets(remote.weights.rpartition("/")[2])
    assert len(spans) == 2
    assert int(spans[1].removeprefix("bytes=").partition("-")[0]) > 0


def test_download_of_a_killed_job_is_resumed(
    remote: Remote, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # The Job is killed when the download of the weights breaks, after all other files.
        remote.server.cut, remote.server.cuts = 50_000, 1
        patch.setattr("specdec.jobs.download._append", _killed_append(threading.Lock()))
        with pytest.raises(SystemExit):
            run({"target": remote.source}, volume)
    assert visible(volume) == []
    remote.server.cut = 0
    remote.server.requests.clear()
    assert run({"target": remote.source}, volume) == 0
    (span,) = remote.server.gets(remote.weights.rpartition("/")[2])
    assert span.startswith("bytes=1000-")
    digest = read_result()["models"]["target"]["digest"]
    assert (volume / "checkpoints" / digest / "model.safetensors").read_bytes() == WEIGHTS


def _killed_append(lock: threading.Lock) -> Callable[..., None]:
    """Write the first thousand bytes of the weights, then end the Job."""

    def append(part: Path, file: Any, read: Any, stop: Any, where: str) -> None:
        if file.size != len(WEIGHTS):
            with part.open("ab") as writer, read(file, 0) as blocks:
                writer.writelines(blocks)
            return
        part.write_bytes(WEIGHTS[:1000])
        with lock:
            raise SystemExit(143)

    return append


def test_refusal_names_the_secret_and_valid_credentials_work(
    kind: str,
    remote: Remote,
    volume: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    remote.server.password = PASSWORDS[kind]
    assert run({"target": remote.source}, volume) in (1, 2)
    error = read_result()["error"]
    if kind != "ngc":  # without a key the Job requests a public model, which does not exist
        assert error["reason"] == "AuthFailed"
        assert f"the Secret of the target's {kind}." in error["message"]
    for name, value in remote.secrets.items():
        monkeypatch.setenv(name, value)
    assert run({"target": remote.source}, volume) == 0
    printed = capfd.readouterr()
    for value in remote.secrets.values():
        assert value not in printed.out + printed.err
    for secret in ("s3cret", "pa55word", "key-1", "BEGIN PRIVATE KEY"):
        assert secret not in printed.out + printed.err


WRONG = {
    "s3": [{"uri": "s3://bucket/nothing"}, {"uri": "s3://other/models"}],
    "gcs": [{"uri": "gs://bucket/nothing"}, {"uri": "gs://other/m"}],
    "oci": [{"reference": "{host}/acme/model:v2"}, {"reference": "{host}/acme/../x"}],
    "ngc": [{"resource": "acme/lab/model:2"}, {"resource": "acme"}, {"resource": "a/../b:1"}],
}


def test_missing_source_is_named(kind: str, remote: Remote, volume: Path) -> None:
    for wrong in WRONG[kind]:
        changed = {k: v.replace("{host}", remote.server.host) for k, v in wrong.items()}
        source = {kind: remote.source[kind] | changed}
        assert run({"target": source}, volume) == result.PERMANENT
        error = read_result()["error"]
        assert error["reason"] == "SourceNotFound"
        assert next(iter(changed.values())) in error["message"]
    assert visible(volume) == []


def test_failed_connection_is_a_transient_error(
    kind: str, remote: Remote, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.jobs.object_store._RETRY", {"max_retries": 0})
    text = json.dumps(remote.source).replace(remote.server.host, "127.0.0.1:9")
    assert run({"target": json.loads(text)}, volume) == result.TRANSIENT
    assert read_result()["error"]["reason"] == "NetworkError"


def test_download_without_progress_is_aborted(remote: Remote, volume: Path) -> None:
    """Each connection breaks before the Job keeps a byte; the Job must not retry forever."""
    remote.server.cut, remote.server.cuts = 1, 1_000_000
    remote.server.ranges = False
    code = run({"target": remote.source}, volume)
    assert code in (result.TRANSIENT, result.PERMANENT)
    assert read_result()["error"]["reason"] in ("NetworkError", "CheckpointCorrupt")
    assert visible(volume) == []


def test_file_that_is_truncated_at_its_source_is_corrupt(kind: str, volume: Path) -> None:
    with ExitStack() as stack:
        remote = REMOTES[kind](stack)
        if isinstance(remote.server, Registry):
            remote.server.layers.clear()
            for name, data in FILES.items():
                remote.server.title(name, data[:-1] if data is WEIGHTS else data)
        else:
            remote.put(remote.weights, WEIGHTS[:-1])
        assert run({"target": remote.source}, volume) == result.PERMANENT
        assert read_result()["error"]["reason"] == "CheckpointCorrupt"
        assert [p for p in (volume / "checkpoints").iterdir() if p.is_dir()] == []
