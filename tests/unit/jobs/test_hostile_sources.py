"""File names and archives that point outside the directory, and unusual registries."""

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec.jobs import archive, registry, result
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.registry import Reference
from specdec.jobs.result import JobError
from unit.jobs.checkpoints import run, visible
from unit.jobs.fake_servers import Catalogue, Registry, Store, serving
from unit.jobs.termination import read_result
from unit.jobs.test_sources import FILES

NAMES = [
    "../evil.json",
    "/evil.json",
    "a/../../evil.json",
    "..",
    "evil\n.json",
    "e\u202evil.json",
    "x" * 300 + ".json",
    ".evil.json",
]
TAR = "application/vnd.oci.image.layer.v1.tar"


def files_under(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def acme() -> Iterator[Registry]:
    with serving(Registry({})) as running:
        yield running


def source(acme: Registry, name: str = ":v1") -> dict[str, Any]:
    return {"oci": {"reference": f"{acme.host}/acme/model{name}"}}


def packed(*members: tuple[str, bytes | str], mode: str = "w:gz", kind: bytes = b"") -> bytes:
    """Return a tar archive; content of type `str` is the target of a link of type `kind`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive_file:  # type: ignore[call-overload]
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = kind or tarfile.SYMTYPE, content
                archive_file.addfile(member)
            else:
                member.size = len(content)
                archive_file.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_names_outside_the_directory_are_not_included(name: str) -> None:
    assert not any(kind.includes(name) for kind in ArtifactKind)
    assert ArtifactKind.CHECKPOINT.includes("a b'\"$(x)`.json")


def test_hostile_titles_paths_and_members_write_nothing(acme: Registry, tmp_path: Path) -> None:
    for name, data in FILES.items():
        acme.title(name, data)
    for name in NAMES:
        acme.title(name, b"evil")
    # In an archive or a model, a path with a leading slash starts at its root and stays inside.
    relative = [name for name in NAMES if not name.startswith("/")]
    members = [(name, b"evil") for name in relative]
    acme.add(packed(*members), mediaType=f"{TAR}+gzip")
    catalogue = Catalogue({**FILES, **dict.fromkeys(relative, b"evil")})
    with serving(catalogue):
        ngc = {"ngc": {"resource": "acme/lab/model:1", "endpoint": catalogue.url}}
        for number, origin in enumerate((source(acme), ngc)):
            volume = tmp_path / str(number) / "models"
            volume.mkdir(parents=True)
            assert run({"target": origin}, volume) == 0
            digest = read_result()["models"]["target"]["digest"]
            assert files_under(volume / "checkpoints" / digest) == set(FILES)
            assert not list(tmp_path.rglob("*evil*"))


def test_bucket_with_hostile_keys_writes_nothing_outside(volume: Path) -> None:
    files = {f"bucket/a/{n}": d for n, d in FILES.items()}
    with serving(Store({**files, "bucket/a/../../evil.json": b"evil"})) as store:
        s3 = {"s3": {"uri": "s3://bucket/a", "endpoint": store.url}}
        assert run({"target": s3}, volume) in (0, result.PERMANENT, result.TRANSIENT)
    assert not list(volume.parent.rglob("*evil*"))


@pytest.mark.parametrize(
    ("mode", "media", "prefix"),
    [("w", TAR, ""), ("w:gz", f"{TAR}+gzip", "models/"), ("w:gz", f"{TAR}+gzip", "./models/")],
)
def test_files_are_unpacked_from_image_layers(
    mode: str, media: str, prefix: str, acme: Registry, volume: Path
) -> None:
    beside = [("etc/config.json", b"no"), ("usr/lib/x.json", b"no")]
    names = sorted(FILES)
    acme.add(packed((f"{prefix}{names[0]}", FILES[names[0]]), *beside, mode=mode), mediaType=media)
    rest = [(f"{prefix}{name}", FILES[name]) for name in names[1:]]
    acme.add(packed(*rest, mode=mode), mediaType=media)
    assert run({"target": source(acme)}, volume) == 0
    folder = volume / "checkpoints" / read_result()["models"]["target"]["digest"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == FILES


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused_by_name(kind: bytes, acme: Registry, volume: Path) -> None:
    acme.add(packed(("models/config.json", "/etc/passwd"), kind=kind), mediaType=f"{TAR}+gzip")
    assert run({"target": source(acme)}, volume) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "SourceNotFound"
    assert "config.json" in error["message"]
    assert "link" in error["message"]
    assert visible(volume) == []


def test_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    """A link in a hostile layer cannot redirect the files after it."""
    layer = tmp_path / "layer"
    layer.write_bytes(packed(("config.json", b"{}"), ("dir", "/tmp"), ("dir/x.json", b"evil")))
    out = tmp_path / "out"
    out.mkdir()
    archive.unpack(layer, out, ArtifactKind.CHECKPOINT, "here")
    assert [p.name for p in out.iterdir()] == ["config.json"]


def test_unknown_archive_format_is_refused(acme: Registry, volume: Path) -> None:
    acme.add(b"\x28\xb5\x2f\xfd zstd", mediaType=f"{TAR}+zstd")
    assert run({"target": source(acme)}, volume) == result.PERMANENT
    assert "pack it as tar or tar+gzip" in read_result()["error"]["message"]


def test_blob_that_differs_from_its_digest_is_refused(acme: Registry, volume: Path) -> None:
    for name, data in FILES.items():
        acme.title(name, data)
    digest = acme.layers[0]["digest"]
    acme.files[digest] = bytes(len(acme.files[digest]))
    assert run({"target": source(acme)}, volume) == result.TRANSIENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointCorrupt"
    assert "does not match its digest" in error["message"]


def test_expired_tokens_are_renewed(acme: Registry, volume: Path) -> None:
    acme.lifetime = 2
    acme.index = True
    for name, data in FILES.items():
        acme.title(name, data)
    assert run({"target": source(acme)}, volume) == 0
    assert acme.tokens > 1
    assert read_result()["models"]["target"]["revision"].startswith("sha256:")


def test_registry_with_basic_authentication_is_supported(
    acme: Registry, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.basic, acme.password = True, "pa55"
    for name, data in FILES.items():
        acme.title(name, data)
    auth = "bWU6cGE1NQ=="
    config = json.dumps({"auths": {f"https://{acme.host}/v1/": {"auth": auth}}})
    monkeypatch.setenv("OCI_CONFIG_TARGET", config)
    assert run({"target": source(acme)}, volume) == 0


@pytest.mark.parametrize("config", ["not json: pa55", '{"auths": 3}', '{"auths": {"r.io": {}}}'])
def test_invalid_credentials_are_never_quoted(config: str) -> None:
    with pytest.raises(JobError, match="docker-registry") as caught:
        registry.registry_credentials(config, "r.io", "the Secret")
    assert "pa55" not in str(caught.value)
    assert caught.value.__cause__ is None


REFERENCES = [
    ("library/x", "docker.io", "library/x", "latest"),
    ("x:1", "docker.io", "library/x", "1"),
    ("ghcr.io/a/b:v1", "ghcr.io", "a/b", "v1"),
    ("r:5000/a@sha256:" + "0" * 64, "r:5000", "a", "sha256:" + "0" * 64),
]


@pytest.mark.parametrize(("text", "host", "repository", "name"), REFERENCES)
def test_valid_references_are_parsed(text: str, host: str, repository: str, name: str) -> None:
    assert Reference.parse(text, "target") == Reference(host, repository, name)


@pytest.mark.parametrize(
    "text",
    ["", "r.io/../a:1", "r.io/a:1\n", "r.io/A:1", "r.io/a@sha256:0", "u:p@r.io/a", "r.io/a?x"],
)
def test_invalid_references_are_refused(text: str) -> None:
    with pytest.raises(JobError, match=r"oci\.reference"):
        Reference.parse(text, "target")


def test_only_loopback_is_used_without_tls() -> None:
    assert Reference.parse("127.0.0.1:5000/a:1", "t").base == "http://127.0.0.1:5000/v2/a"
    assert Reference.parse("127.0.0.1.evil.example/a:1", "t").base.startswith("https://")
    assert Reference.parse("x:1", "t").base == "https://registry-1.docker.io/v2/library/x"


def refusal(acme: Registry, data: bytes, media: str, volume: Path) -> str:
    """Check that the Job refuses a layer, and return the error message."""
    acme.add(data, mediaType=media)
    assert run({"target": source(acme)}, volume) == result.PERMANENT
    error = read_result()["error"]
    assert error["reason"] == "CheckpointCorrupt", error
    assert visible(volume) == []
    return str(error["message"])


@pytest.mark.slow
def test_small_layer_that_unpacks_to_gigabytes_is_refused(acme: Registry, volume: Path) -> None:
    """gzip can compress a thousandfold; files on the volume must not exceed the packed size."""
    zeros = tarfile.TarInfo("models/model.safetensors")
    zeros.size = 512 << 20
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as packer:
        packer.write(zeros.tobuf())
        for _ in range(zeros.size >> 24):
            packer.write(bytes(1 << 24))
    message = refusal(acme, out.getvalue(), f"{TAR}+gzip", volume)
    assert "50 times its size" in message
    assert max(p.stat().st_size for p in volume.rglob("*") if p.is_file()) <= len(out.getvalue())


@pytest.mark.parametrize("name", ["models/config.json", "etc/other"])
def test_long_header_is_not_read_into_memory(name: str, acme: Registry, volume: Path) -> None:
    """A pax header states its own length, and tarfile reads it in one piece."""
    member = tarfile.TarInfo(name)
    member.pax_headers = {"comment": "x" * (8 << 20)}
    data = member.tobuf(format=tarfile.PAX_FORMAT) + bytes(1024)
    tracemalloc.start()
    try:
        assert "headers of more than 1 MiB" in refusal(acme, data, TAR, volume)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The peak includes copies of the layer in the test's server and in the response.
    assert peak < 3 * len(data)


@pytest.mark.slow
def test_many_members_do_not_fill_memory(tmp_path: Path) -> None:
    layer, out = tmp_path / "layer", tmp_path / "out"
    layer.write_bytes(tarfile.TarInfo("x").tobuf() * 20_000 + bytes(1024))
    out.mkdir()
    tracemalloc.start()
    try:
        archive.unpack(layer, out, ArtifactKind.CHECKPOINT, "here")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_truncated_archive_is_reported_in_one_sentence(
    part: float, mode: str, acme: Registry, volume: Path
) -> None:
    data = packed(("model.safetensors", FILES["model.safetensors"]), mode=mode)
    short = data[: int(len(data) * part)]
    message = refusal(acme, short, TAR, volume)
    assert "cannot be unpacked: it is truncated, damaged or no archive" in message


@pytest.mark.parametrize("mode", ["w:xz", "w:bz2"])
def test_other_compression_formats_are_refused(mode: str, acme: Registry, volume: Path) -> None:
    """Unpacking xz takes as much memory as its header requests."""
    message = refusal(acme, packed(("config.json", b"{}"), mode=mode), TAR, volume)
    assert "pack it as tar or tar+gzip" in message
