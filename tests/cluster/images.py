"""Builds the Dockerfile's targets with buildah, as root and without a daemon.

The Dockerfile has nothing that is specific to this machine. To reach package registries, each
build step mounts this machine's certificates and its settings of pip and apt. They never become
part of an image. The build does not run the stage `library`: this machine compiles the library
anyway, and the image of a compiler is large.
"""

import configparser
import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import base, folders, prerequisites
from cluster.buildah import buildah, image_id
from cluster.errors import ClusterError
from cluster.progress import Report
from support import bls

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "proxy")
_IGNORED = {"__pycache__", ".git", ".venv"}
# The build takes the result of this stage from a folder of this machine.
_LIBRARY = "library"


@dataclass(frozen=True)
class Image:
    """A built image: its name, its id, and the hash of its inputs."""

    tag: str
    id: str
    inputs: str


def default_tag(target: str) -> str:
    """Return the default name of a target's image."""
    return f"localhost/specdec-{target}:dev"


def build(target: str, tag: str, report: Report, file: str = "Dockerfile") -> Image:
    """Build one target of the Dockerfile, or return the image of an earlier, equal build.

    Raises:
        ClusterError: the Dockerfile is missing, or a step failed; carries the end of its output.
    """
    dockerfile = folders.repository() / file
    if not dockerfile.is_file():
        raise ClusterError(f"There is no {dockerfile} to build {target} from.")
    prerequisites.require_images(report)
    try:
        bls.build(report)
    except bls.BuildError as error:
        raise ClusterError(str(error)) from error
    with folders.locked(_folder() / ".lock"):
        needed = base.named(dockerfile.read_text(), {_LIBRARY})
        names = {name: base.ensure(name, report) for name in needed}
        inputs = input_hash(dockerfile, target, names)
        previous = _recorded(tag)
        if previous and previous.inputs == inputs and image_id(tag) == previous.id:
            report(f"{tag} is built already")
            return previous
        report(f"building {tag}")
        _run(dockerfile, target, tag, names, report)
        image = Image(tag, image_id(tag) or "", inputs)
        folders.write(_ledger(tag), json.dumps(asdict(image)))
        if previous and previous.id != image.id:
            # The old image has no tag now. Shared layers stay; a failure only costs disk space.
            buildah("rmi", previous.id)
    return image


def find(tag: str) -> Image:
    """Return the image that `image build` made under this name.

    Raises:
        ClusterError: the image does not exist.
    """
    if image := _recorded(tag):
        return image
    raise ClusterError(f"There is no image {tag}; `image build --tag {tag}` makes it.")


def export(tag: str, archive: Path) -> Path:
    """Write the image as a docker-archive to the file archive, and return archive."""
    archive.unlink(missing_ok=True)
    done = buildah("push", "--quiet", tag, f"docker-archive:{archive}:{tag}")
    if done.returncode != 0:
        raise ClusterError(f"The image {tag} could not be exported: {done.stderr.strip()}")
    return archive


def input_hash(dockerfile: Path, target: str, names: Mapping[str, str] | None = None) -> str:
    """Return the hash of an image's inputs: target, Dockerfile, copied files, base images.

    Args:
        dockerfile: path of the file, at the root of the context.
        target: the stage that becomes the image.
        names: full name of a base image to its name in the store, if the two differ.
    """
    text = dockerfile.read_text()
    hasher = hashlib.sha256(f"{target}\0{text}".encode())
    for name in base.named(text, {_LIBRARY}):
        hasher.update(f"\0{image_id((names or {}).get(name, name))}".encode())
    for pattern in _copied(text):
        matches = sorted(dockerfile.parent.glob(pattern.strip("/"))) if pattern != "." else []
        for path in matches or [dockerfile.parent]:
            for entry in _files(path):
                hasher.update(f"\0{entry}\0{entry.stat().st_mode}\0".encode())
                hasher.update(entry.read_bytes())
    return hasher.hexdigest()


def _copied(text: str) -> list[str]:
    """Return the paths in the context that COPY and ADD copy, in the order of the Dockerfile."""
    joined = re.sub(r"\\\n", " ", text)
    copied: list[str] = []
    for match in re.finditer(r"^\s*(?:COPY|ADD)\s+(.*)$", joined, re.MULTILINE | re.IGNORECASE):
        arguments = match.group(1).split()
        if not any(argument.startswith("--from=") for argument in arguments):
            copied += [item for item in arguments if not item.startswith("--")][:-1]
    return copied


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(
        entry for entry in path.rglob("*") if entry.is_file() and not _IGNORED & set(entry.parts)
    )


def _run(
    dockerfile: Path, target: str, tag: str, names: Mapping[str, str], report: Report
) -> None:
    text = base.resolved(dockerfile.read_text(), names)
    file = folders.write(_folder() / "Dockerfile", text)
    argv = ["build", "--layers", "--pull=never", "--network=host", f"--target={target}"]
    argv += [f"--tag={tag}", f"--file={file}"]
    for source, place in _mounts().items():
        argv += ["--volume", f"{source}:{place}:ro"]
    argv += ["--build-context", f"{_LIBRARY}={bls.PACKAGED}"]
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        if re.match(r"(\[\d+/\d+\] )?STEP ", line):
            report(f"  {line[:110]}")

    if buildah(*argv, str(dockerfile.parent), hear=hear).returncode != 0:
        output = " / ".join(line for line in lines[-4:] if line)
        raise ClusterError(f"Building {tag} failed: {output}")


def _mounts() -> dict[str, str]:
    """Return the paths of this machine that build steps see, each with its path in a step."""
    mounts = {}
    candidates = (os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES)
    bundle = next((path for path in candidates if path and Path(path).is_file()), None)
    if bundle:
        mounts[bundle] = _BUNDLES[0]
    mounts[str(_pip_settings(with_bundle=bundle is not None))] = "/etc/pip.conf"
    if platform.freedesktop_os_release().get("VERSION_CODENAME") == base.RELEASE:
        mounts["/etc/apt"] = "/etc/apt"
    return mounts


def _pip_settings(*, with_bundle: bool) -> Path:
    """Write the pip settings that a build needs to a separate file, and return its path."""
    read = configparser.RawConfigParser()
    read.read([Path(file).expanduser() for file in _PIP_FILES])
    settings = dict(read["global"]) if read.has_section("global") else {}
    kept = {key: value for key, value in settings.items() if key in _PIP_SETTINGS}
    for key in _PIP_SETTINGS:
        variable = "PIP_" + key.upper().replace("-", "_")
        if variable in os.environ:
            kept[key] = os.environ[variable]
    if with_bundle:
        kept["cert"] = _BUNDLES[0]
    lines = [f"{key} = {value}" for key, value in kept.items()]
    return folders.write(_folder() / "pip.conf", "\n".join(["[global]", *lines, ""]), 0o644)


def _recorded(tag: str) -> Image | None:
    ledger = _ledger(tag)
    return Image(**json.loads(ledger.read_text())) if ledger.exists() else None


def _ledger(tag: str) -> Path:
    return _folder() / (re.sub(r"[^a-zA-Z0-9.-]+", "_", tag) + ".json")


def _folder() -> Path:
    return folders.cache() / "images"
