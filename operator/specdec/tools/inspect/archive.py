"""Pack files into one archive, with the same bytes for the same files."""

import gzip
import io
import tarfile
from collections.abc import Mapping


def pack(files: Mapping[str, bytes], root: str) -> bytes:
    """A tar.gz of the files (path -> content) below a directory `root`.

    Owners and times of this machine are left out.
    """
    buffer = io.BytesIO()
    # mtime 0: the time of packing would be part of the bytes.
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
