"""The Dockerfile's base images: pulled, or made from Debian's packages if no pull succeeds."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from cluster import folders
from cluster.buildah import buildah, image_id
from cluster.errors import ClusterError
from cluster.progress import Report

RELEASE = "bookworm"
STAND_IN = "docker.io/library/python:3.11-slim-bookworm"
_PACKAGES = "python3,python3-venv,python3-pip,libpython3.11,ca-certificates"
_PULL_SECONDS = 120.0
_USELESS = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")


def named(dockerfile: str, given: Collection[str] = ()) -> list[str]:
    """Return the full names of the images in FROM lines, without the file's own stages.

    Skip the images of the stages in `given`: the build gets these stages from elsewhere.
    """
    pattern = re.compile(
        r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.MULTILINE | re.IGNORECASE
    )
    stages: set[str] = {"scratch"}
    images: list[str] = []
    for image, stage in pattern.findall(dockerfile):
        if image.lower() not in stages and stage.lower() not in given:
            images.append(full_name(image))
        stages.add(stage.lower())
    return list(dict.fromkeys(images))


def full_name(image: str) -> str:
    """Return an image's name with the registry that Docker would assume."""
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"


def resolved(dockerfile: str, names: Mapping[str, str]) -> str:
    """Return the Dockerfile with other image names in its FROM lines.

    Args:
        dockerfile: the text of the file.
        names: full name of an image to its new name; other images keep their names.
    """

    def replaced(match: re.Match[str]) -> str:
        return match[1] + names.get(full_name(match[2]), match[2])

    return re.sub(r"(?mi)^(\s*FROM\s+(?:--\S+\s+)*)(\S+)", replaced, dockerfile)


def ensure(name: str, report: Report) -> str:
    """Make sure that the store has the image called name: pull or make it if it is missing.

    Returns:
        The image's name in the store. An image made here has no digest in its name.

    Raises:
        ClusterError: the image can neither be pulled nor made.
    """
    stands_in = name.partition("@")[0] == STAND_IN
    for there in (name, *([STAND_IN] if stands_in else [])):
        if image_id(there):
            return there
    report(f"pulling {name}")
    if _pulled(name):
        return name
    if not stands_in:
        raise ClusterError(f"The base image {name} cannot be pulled, and only {STAND_IN} is made.")
    report(f"no registry has it for this machine: making {STAND_IN} from Debian's packages")
    folder = folders.cache() / "images"
    root = Path(tempfile.mkdtemp(prefix=".base-", dir=folder))
    try:
        _bootstrap(root)
        _dress(root)
        _commit(root, STAND_IN)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return STAND_IN


def _pulled(name: str) -> bool:
    try:
        return buildah("pull", "--quiet", name, timeout=_PULL_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _bootstrap(root: Path) -> None:
    argv = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", RELEASE, str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
        raise ClusterError(f"debootstrap could not make the base image: {output[0]}")


def _dress(root: Path) -> None:
    """Give Debian's Python the paths of the image that it replaces."""
    for link in ("python", "python3", "python3.11"):
        (root / "usr/local/bin" / link).symlink_to("/usr/bin/python3.11")
    for link in ("pip", "pip3"):
        (root / "usr/local/bin" / link).symlink_to("/usr/bin/pip3")
    # In that image pip may install into the interpreter; this file of Debian forbids it.
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
    for useless in _USELESS:
        shutil.rmtree(root / useless, ignore_errors=True)
        (root / useless).mkdir()


def _commit(root: Path, name: str) -> None:
    done = buildah("from", "scratch")
    container = done.stdout.strip()
    steps: Iterable[tuple[str, ...]] = (
        ("add", "--quiet", container, str(root), "/"),
        ("config", "--cmd", "python3", "--env", "LANG=C.UTF-8", container),
        ("commit", "--quiet", "--rm", container, name),
    )
    for step in steps:
        done = buildah(*step)
        if done.returncode != 0:
            raise ClusterError(f"buildah could not make {name}: {done.stderr.strip()}")
