"""Which changes cause a new build of an image, and which settings of the machine it uses."""

import fcntl
from pathlib import Path

import pytest

from cluster import base, folders, images, prerequisites
from cluster.errors import ClusterError

DOCKERFILE = """
FROM --platform=linux/amd64 python:3.11-slim-bookworm AS build
COPY pyproject.toml \\
     operator /src/
FROM build
COPY --from=build /src /app
COPY --chown=1:1 *.md docs /app/
FROM quay.io/other/image:1 AS last
FROM scratch
"""


def test_base_images_exclude_stages_of_the_dockerfile() -> None:
    assert base.named(DOCKERFILE) == [base.STAND_IN, "quay.io/other/image:1"]


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python:3", "docker.io/library/python:3"),
        ("bitnami/kubectl", "docker.io/bitnami/kubectl"),
        ("localhost/a:1", "localhost/a:1"),
        ("registry:5000/a", "registry:5000/a"),
    ],
)
def test_full_name_adds_the_default_registry(image: str, full: str) -> None:
    assert base.full_name(image) == full


PINNED = f"python:3.11-slim-bookworm@sha256:{'a' * 64}"


def test_local_base_image_replaces_a_pinned_image_that_cannot_be_pulled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An image made on this machine cannot have the digest of the registry's image."""
    made: list[str] = []
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(base, "image_id", lambda name: "id" if name in made else None)
    monkeypatch.setattr(base, "_pulled", lambda _: False)
    for step in ("_bootstrap", "_dress"):
        monkeypatch.setattr(base, step, lambda _: None)
    monkeypatch.setattr(base, "_commit", lambda _, name: made.append(name))
    (name,) = base.named(f"FROM {PINNED} AS base")
    for _ in range(2):
        assert base.ensure(name, lambda _: None) == base.STAND_IN
        assert made == [base.STAND_IN]
    with pytest.raises(ClusterError, match="cannot be pulled"):
        base.ensure(f"docker.io/library/rust@sha256:{'a' * 64}", lambda _: None)


def test_stored_pinned_image_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "image_id", lambda _: "id")
    name = base.full_name(PINNED)
    assert base.ensure(name, lambda _: None) == name


def test_resolved_dockerfile_changes_only_the_base_image() -> None:
    text = f"FROM {PINNED} AS base\nRUN echo {PINNED}\nFROM base\n"
    name = base.full_name(PINNED)
    changed = base.resolved(text, {name: base.STAND_IN})
    assert changed == text.replace(f"FROM {PINNED}", f"FROM {base.STAND_IN}")
    assert base.resolved(text, {name: name}) == text.replace(f"FROM {PINNED}", f"FROM {name}")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "image_id", lambda _: "base-1")
    root = tmp_path / "context"
    (root / "operator" / "__pycache__").mkdir(parents=True)
    (root / "docs").mkdir()
    for name in ("pyproject.toml", "operator/a.py", "README.md", "docs/b", "unrelated.txt"):
        (root / name).write_text(name)
    (root / "Dockerfile").write_text(DOCKERFILE)
    return root


@pytest.mark.parametrize("name", ["pyproject.toml", "operator/a.py", "README.md", "docs/b"])
def test_changed_copied_file_changes_the_input_hash(context: Path, name: str) -> None:
    before = images.input_hash(context / "Dockerfile", "last")
    (context / name).write_text("changed")
    assert images.input_hash(context / "Dockerfile", "last") != before


@pytest.mark.parametrize("name", ["unrelated.txt", "operator/__pycache__/a.pyc"])
def test_file_that_is_not_copied_keeps_the_input_hash(context: Path, name: str) -> None:
    before = images.input_hash(context / "Dockerfile", "last")
    (context / name).write_text("changed")
    assert images.input_hash(context / "Dockerfile", "last") == before


def test_target_mode_and_base_image_change_the_input_hash(
    context: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dockerfile = context / "Dockerfile"
    seen = {images.input_hash(dockerfile, "last"), images.input_hash(dockerfile, "build")}
    (context / "operator/a.py").chmod(0o755)
    seen.add(images.input_hash(dockerfile, "last"))
    monkeypatch.setattr(images, "image_id", lambda _: "base-2")
    seen.add(images.input_hash(dockerfile, "last"))
    assert len(seen) == 4


def test_build_passes_only_index_settings_to_pip(
    context: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://one.example/%2F\nbreak-system-packages = 1\n")
    monkeypatch.setattr(images, "_PIP_FILES", (str(config),))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two.example/")
    written = images._pip_settings(with_bundle=True).read_text().splitlines()
    assert written[:3] == [
        "[global]",
        "index-url = https://one.example/%2F",
        "extra-index-url = https://two.example/",
    ]
    assert "cert = /etc/ssl/certs/ca-certificates.crt" in written
    assert not any("break" in line for line in written)


def test_unknown_image_is_an_error_with_its_name(context: Path) -> None:
    with pytest.raises(ClusterError, match="There is no image localhost/none:1"):
        images.find("localhost/none:1")


def test_missing_package_is_listed_once() -> None:
    commands = {"sh": "dash", "no-such-1": "one", "no-such-2": "two", "no-such-3": "two"}
    assert prerequisites.missing(commands) == ["one", "two"]


def test_error_lists_missing_packages_without_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "missing", lambda _: ["buildah", "debootstrap"])
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(ClusterError, match="install buildah, debootstrap; there is no apt-get"):
        prerequisites.require_images(lambda _: None)


def apt_get(folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put only a fake apt-get on PATH, which runs program and then fails with status 100."""
    file = folder / "apt-get"
    file.write_text(f"#!/bin/sh\n{program}\nexit 100\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(prerequisites, "_FOLDERS", ())
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SPECDEC_CACHE", str(folder))


def test_error_shows_what_apt_get_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_get(tmp_path, 'echo "E: no such package" >&2', monkeypatch)
    with pytest.raises(ClusterError, match=r"could not install buildah, .*\. E: no such package$"):
        prerequisites.require_images(lambda _: None)


def test_packages_of_another_process_are_not_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_get(tmp_path, ": >called", monkeypatch)
    monkeypatch.chdir(tmp_path)
    locked: list[bool] = []  # whether the lock is held, for each call of missing()

    def missing(_: dict[str, str]) -> list[str]:
        with (folders.cache() / "apt-get.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.append(False)
            except BlockingIOError:
                locked.append(True)
        return [] if locked[-1] else ["buildah"]

    monkeypatch.setattr(prerequisites, "missing", missing)
    prerequisites.require_images(lambda _: None)
    assert locked == [False, True]
    assert not (tmp_path / "called").exists()


def test_node_without_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs Linux and root"):
        prerequisites.require_node(lambda _: None)
