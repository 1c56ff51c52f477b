"""Writes the CRD's schema into the package, where `specdec plan` uses it to check resources.

`make generate` runs it as `python -m support.carried_definition`; a test compares the two.
"""

from specdec.tools.dry_run.admission.definition import FILE, carried
from support.documents import CRD, definition

CARRIED = CRD.parents[1] / "operator" / "specdec" / "tools" / "dry_run" / "admission" / FILE


def text() -> str:
    """Return the schema as the package must contain it."""
    return carried(definition())


if __name__ == "__main__":
    CARRIED.write_text(text(), encoding="utf-8")
