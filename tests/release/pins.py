"""The base images of the Dockerfile, pinned to their content.

`python -m release.pins`, or `make pin`, writes the digest that the registry has now for each tag.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from cluster import base
from cluster.processes import DEADLINE_SECONDS

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class PinError(Exception):
    """An image's digest is unknown; the message has the image and the output of docker."""


def unpinned(dockerfile: str) -> list[str]:
    """Return the base images without a digest, in the order of the Dockerfile."""
    names = base.named(dockerfile)
    return [name for name in names if not _DIGEST.fullmatch(name.partition("@")[2])]


def pinned(dockerfile: str) -> str:
    """Return the Dockerfile with every base image at the digest that its tag has now.

    It is the digest of the image index, which lists the image of each platform.

    Raises:
        PinError: the digest of an image is unknown.
    """
    tags = {name: _short(name).partition("@")[0] for name in base.named(dockerfile)}
    return base.resolved(
        dockerfile, {name: f"{tag}@{_resolved(tag)}" for name, tag in tags.items()}
    )


def _short(name: str) -> str:
    """Return an image's name without the registry that Docker assumes."""
    return name.removeprefix("docker.io/").removeprefix("library/")


def _resolved(image: str) -> str:
    argv = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PinError(f"{image} has no digest: docker does not run: {error}") from error
    if done.returncode == 0 and (digest := _digest(done.stdout)):
        return digest
    printed = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    raise PinError(f"{image} has no digest: docker printed {printed!r}")


def _digest(manifest: str) -> str:
    try:
        digest = json.loads(manifest)["digest"]
    except (ValueError, TypeError, KeyError):
        return ""
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else ""


def main(path: Path) -> int:
    """Pin the Dockerfile and return 0; on an error, report it, write nothing and return 1."""
    try:
        text = pinned(path.read_text("utf-8"))
    except PinError as error:
        sys.stderr.write(f"pin: {error}\n")
        return 1
    path.write_text(text, "utf-8")
    sys.stdout.writelines(f"{_short(name)}\n" for name in base.named(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:2] or ["Dockerfile"])))
