"""Write the CRD's schema into the package, which `specdec plan` checks resources against.

`make generate` runs it as `python -m support.carried_definition`; a test compares the two.
"""

from specdec.dry_run.admission.definition import FILE, carried
from support.documents import CRD, definition

CARRIED = CRD.parents[1] / "operator" / "specdec" / "dry_run" / "admission" / FILE


def text() -> str:
    """What the package must carry."""
    return carried(definition())


if __name__ == "__main__":
    CARRIED.write_text(text(), encoding="utf-8")
