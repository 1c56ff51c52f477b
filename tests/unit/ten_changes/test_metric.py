"""Adding a metric of the BLS touches two files: one counts it and one exports it."""

import re
from pathlib import Path

# The file with the counters that have a label for the source of drafts.
BY_SOURCE = "serving/sources.rs"
SOURCES = Path(__file__).parents[3] / "operator" / "bls" / "specdec-bls" / "src"


def files_with(pattern: str) -> set[str]:
    """Return the source files of the BLS that match a pattern."""
    files = SOURCES.rglob("*.rs")
    return {str(f.relative_to(SOURCES)) for f in files if re.search(pattern, f.read_text())}


def test_new_metric_of_the_bls_touches_two_production_files() -> None:
    exported = files_with(r'"specdec_\w+_total"')
    assert exported == {"serving/metrics.rs", BY_SOURCE}
    fields = re.findall(
        r"\(&self\.\w+, counts\.(\w+)\)", (SOURCES / "serving/metrics.rs").read_text()
    )
    assert len(fields) >= 4
    for field in fields:
        written = files_with(rf"\bcounts\.{field}\b|^ +pub {field}: usize,$") - {BY_SOURCE}
        assert written | {"sequence/effects.rs"} == {"serving/metrics.rs", "sequence/effects.rs"}
