"""The image check as one file that runs in a container of the image, which has only Python."""

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from specdec.backends import programs

_SHEBANG = b"#!/usr/bin/env python3\n"
# Equal files make equal archives.
_TIME = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import sys

import image_main

sys.exit(image_main.main(text={expected!r}))
"""


def packed(expected: Mapping[str, Any]) -> bytes:
    """An archive that Python runs: the program, and what it expects of a release's image."""
    main = _MAIN.format(expected=json.dumps(expected, sort_keys=True))
    buffer = io.BytesIO(_SHEBANG)
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted({**programs.payload("build"), "__main__.py": main}.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text)
    return buffer.getvalue()
