"""The archive of the kubectl plugin, as manifests/krew/specdec.yaml describes it.

`python -m release.plugin FOLDER` writes it. The same sources give the same bytes everywhere: the
archive is not compressed, and has no timestamps of the build.
"""

import hashlib
import io
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = "kubectl-specdec.zip"
# Path in the archive -> (source, permissions).
_FILES = {
    "kubectl-specdec": (ROOT / "manifests" / "krew" / "kubectl-specdec", 0o755),
    "LICENSE": (ROOT / "LICENSE", 0o644),
}


def archive() -> bytes:
    """Return the bytes of the archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as target:
        for name, (source, permissions) in _FILES.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3  # Unix, so that the permissions apply
            entry.external_attr = permissions << 16
            target.writestr(entry, source.read_bytes())
    return made.getvalue()


def digest() -> str:
    """Return the archive's SHA-256, in hexadecimal."""
    return hashlib.sha256(archive()).hexdigest()


if __name__ == "__main__":
    (Path(sys.argv[1]) / NAME).write_bytes(archive())
