"""A metric of the BLS costs two production files: where it is counted and where it is exported."""

import re
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "operator" / "bls" / "specdec-bls" / "src"


def files_with(pattern: str) -> set[str]:
    """Source files of the BLS that have a text of the pattern."""
    files = SOURCES.rglob("*.rs")
    return {str(f.relative_to(SOURCES)) for f in files if re.search(pattern, f.read_text())}


def test_a_metric_of_the_bls_touches_two_production_files() -> None:
    exported = files_with(r'"specdec_\w+_total"')
    assert exported == {"serving/metrics.rs"}
    fields = re.findall(
        r"\(&self\.\w+, counts\.(\w+)\)", (SOURCES / "serving/metrics.rs").read_text()
    )
    assert len(fields) >= 4
    for field in fields:
        written = files_with(rf"\bcounts\.{field}\b|^ +pub {field}: usize,$")
        assert written | {"sequence/effects.rs"} == {"serving/metrics.rs", "sequence/effects.rs"}
