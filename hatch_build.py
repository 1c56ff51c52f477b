"""Hatchling's build hook: a package names the sources of the BLS's library.

`specdec plan` needs that name and no library, so a package that is built without Rust can plan.
Only the images have the library itself.
"""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_OPERATOR = Path(__file__).parent / "operator"
_NAME = "specdec/images/models/tensorrt_llm_bls/libtriton_specdec.source"


class LibraryDigest(BuildHookInterface[Any]):
    """Adds the digest of the library's sources, unless `make setup` or the Dockerfile did."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to the package; an editable install computes the digest itself."""
        if version == "editable" or (_OPERATOR / _NAME).is_file():
            return
        made = Path(self.directory) / Path(_NAME).name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(f"{_digest()}\n", encoding="utf-8")
        build_data["force_include"][str(made)] = _NAME


def _digest() -> str:
    # The package cannot be imported here: its dependencies are not installed.
    module = runpy.run_path(str(_OPERATOR / "specdec" / "triton" / "library_digest.py"))
    digest: str = module["digest"](_OPERATOR / "bls")
    return digest
