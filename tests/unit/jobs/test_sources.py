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

Told = Callable[[], dict[str, Any]]
WEIGHTS = tensors(b"\1\2" * 40_000)
FILES = {
    "config.json": json.dumps(config()).encode(),
    "tokenizer.json": json.dumps(tokenizer()).encode(),
    "model.safetensors": WEIGHTS,
}
# What stands beside a checkpoint, or wants to be elsewhere; none of it may arrive.
BESIDE = {"README.md": b"no", "onnx/model.safetensors": b"no", ".hidden.json": b"no"}


@dataclass
class Place:
    """A server with a checkpoint, the source that names it, and the secrets that open it."""

    server: Server
    source: dict[str, Any]
    secrets: dict[str, str]
    weights: str

    def put(self, name: str, data: bytes) -> None:
        """Replace a file without telling its true length or digest to anyone."""
        self.server.files[name] = data


def s3(stack: ExitStack) -> Place:
    files = {f"bucket/models/a/{n}": d for n, d in (FILES | BESIDE).items()}
    files["bucket/models/a2/config.json"] = b"another prefix"
    server = stack.enter_context(serving(Store(files)))
    source = {"s3": {"uri": "s3://bucket/models/a/", "endpoint": server.url}}
    secrets = {"S3_ACCESS_TARGET": "AKIDTEST", "S3_SECRET_TARGET": "s3cret"}
    return Place(server, source, secrets, "bucket/models/a/model.safetensors")


def gcs(stack: ExitStack) -> Place:
    files = {f"bucket/m/{n}": d for n, d in (FILES | BESIDE).items()}
    server = stack.enter_context(serving(Store(files)))
    source = {"gcs": {"uri": "gs://bucket/m", "endpoint": server.url}}
    return Place(
        server, source, {"GCS_KEY_TARGET": service_account()}, "bucket/m/model.safetensors"
    )


def oci(stack: ExitStack) -> Place:
    server = stack.enter_context(serving(Registry({})))
    for name, data in (FILES | BESIDE).items():
        server.title(name, data)
    source = {"oci": {"reference": f"{server.host}/acme/model:v1"}}
    auths = {server.host: {"username": "me", "password": "pa55word"}}
    secrets = {"OCI_CONFIG_TARGET": json.dumps({"auths": auths})}
    return Place(server, source, secrets, server.layers[2]["digest"])


def ngc(stack: ExitStack) -> Place:
    server = stack.enter_context(serving(Catalogue(FILES | BESIDE)))
    source = {"ngc": {"resource": "acme/lab/model:1", "endpoint": server.url}}
    return Place(server, source, {"NGC_API_KEY_TARGET": "key-1"}, "model.safetensors")


PLACES = {"s3": s3, "gcs": gcs, "oci": oci, "ngc": ngc}
# What the server must find in the Authorization header.
PASSWORDS = {"s3": "Credential=AKIDTEST/", "gcs": "Bearer ", "oci": "pa55word", "ngc": "key-1"}


@pytest.fixture(params=PLACES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str) -> Iterator[Place]:
    with ExitStack() as stack:
        yield PLACES[kind](stack)


def test_checkpoint_is_complete_and_has_no_other_files(
    place: Place, volume: Path, told: Told, tmp_path: Path
) -> None:
    assert run({"target": place.source}, volume, tmp_path) == 0
    model = told()["models"]["target"]
    folder = volume / "checkpoints" / model["digest"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == FILES
    assert model["revision"]
    assert model["bytes"] == sum(map(len, FILES.values()))


def test_equal_content_has_the_same_digest_from_every_source(volume: Path, told: Told) -> None:
    digests = set()
    with ExitStack() as stack:
        for make in PLACES.values():
            assert run({"target": make(stack).source}, volume, volume) == 0
            digests.add(told()["models"]["target"]["digest"])
    assert len(digests) == 1


def test_a_second_fetch_downloads_nothing(place: Place, volume: Path, told: Told) -> None:
    assert run({"target": place.source}, volume, volume) == 0
    before = len(place.server.gets(place.weights.rpartition("/")[2]))
    assert run({"target": place.source}, volume, volume) == 0
    assert len(place.server.gets(place.weights.rpartition("/")[2])) == before == 1


def test_a_broken_connection_goes_on_where_it_broke(
    place: Place, volume: Path, told: Told
) -> None:
    place.server.cut, place.server.cuts = 50_000, 1
    assert run({"target": place.source}, volume, volume) == 0
    digest = told()["models"]["target"]["digest"]
    assert (volume / "checkpoints" / digest / "model.safetensors").read_bytes() == WEIGHTS
    spans = place.server.gets(place.weights.rpartition("/")[2])
    assert len(spans) == 2
    assert int(spans[1].removeprefix("bytes=").partition("-")[0]) > 0


def test_a_killed_job_s_bytes_are_used_by_the_next(
    kind: str, place: Place, volume: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise SystemExit(143)

    with monkeypatch.context() as patch:
        # The weights break once and the Job dies there, with all else that had arrived.
        place.server.cut, place.server.cuts = 50_000, 1
        patch.setattr("specdec.jobs.download._append", _dying(threading.Lock()))
        with pytest.raises(SystemExit):
            run({"target": place.source}, volume, volume)
    assert visible(volume) == []
    place.server.cut = 0
    place.server.requests.clear()
    assert run({"target": place.source}, volume, volume) == 0
    (span,) = place.server.gets(place.weights.rpartition("/")[2])
    assert span.startswith("bytes=1000-")
    digest = told()["models"]["target"]["digest"]
    assert (volume / "checkpoints" / digest / "model.safetensors").read_bytes() == WEIGHTS


def _dying(lock: threading.Lock) -> Callable[..., None]:
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
    place: Place,
    volume: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    place.server.password = PASSWORDS[kind]
    assert run({"target": place.source}, volume, volume) in (1, 2)
    error = told()["error"]
    if kind != "ngc":  # without a key it is asked for a public model, which is not there
        assert error["reason"] == "AuthFailed"
        assert f"the Secret of the target's {kind}." in error["message"]
    for name, value in place.secrets.items():
        monkeypatch.setenv(name, value)
    assert run({"target": place.source}, volume, volume) == 0
    printed = capfd.readouterr()
    for value in place.secrets.values():
        assert value not in printed.out + printed.err
    for word in ("s3cret", "pa55word", "key-1", "BEGIN PRIVATE KEY"):
        assert word not in printed.out + printed.err


WRONG = {
    "s3": [{"uri": "s3://bucket/nothing"}, {"uri": "s3://other/models"}],
    "gcs": [{"uri": "gs://bucket/nothing"}, {"uri": "gs://other/m"}],
    "oci": [{"reference": "{host}/acme/model:v2"}, {"reference": "{host}/acme/../x"}],
    "ngc": [{"resource": "acme/lab/model:2"}, {"resource": "acme"}, {"resource": "a/../b:1"}],
}


def test_what_is_not_there_is_named(kind: str, place: Place, volume: Path, told: Told) -> None:
    for wrong in WRONG[kind]:
        changed = {k: v.replace("{host}", place.server.host) for k, v in wrong.items()}
        source = {kind: place.source[kind] | changed}
        assert run({"target": source}, volume, volume) == result.PERMANENT
        error = told()["error"]
        assert error["reason"] == "SourceNotFound"
        assert next(iter(changed.values())) in error["message"]
    assert visible(volume) == []


def test_a_silent_server_is_tried_again(
    kind: str, place: Place, volume: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec.jobs.object_store._RETRY", {"max_retries": 0})
    text = json.dumps(place.source).replace(place.server.host, "127.0.0.1:9")
    assert run({"target": json.loads(text)}, volume, volume) == result.TRANSIENT
    assert told()["error"]["reason"] == "NetworkError"


def test_a_file_that_never_ends_well_gives_up(place: Place, volume: Path, told: Told) -> None:
    """Each connection breaks before its first byte is kept: no progress, no endless loop."""
    place.server.cut, place.server.cuts = 1, 1_000_000
    place.server.ranges = False
    code = run({"target": place.source}, volume, volume)
    assert code in (result.TRANSIENT, result.PERMANENT)
    assert told()["error"]["reason"] in ("NetworkError", "CheckpointCorrupt")
    assert visible(volume) == []


def test_a_checkpoint_cut_short_at_its_source_is_corrupt(
    kind: str, volume: Path, told: Told
) -> None:
    with ExitStack() as stack:
        place = PLACES[kind](stack)
        if isinstance(place.server, Registry):
            place.server.layers.clear()
            for name, data in FILES.items():
                place.server.title(name, data[:-1] if data is WEIGHTS else data)
        else:
            place.put(place.weights, WEIGHTS[:-1])
        assert run({"target": place.source}, volume, volume) == result.PERMANENT
        assert told()["error"]["reason"] == "CheckpointCorrupt"
        assert [p for p in (volume / "checkpoints").iterdir() if p.is_dir()] == []
