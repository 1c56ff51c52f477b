"""docs/methods.md equals the generator's output, and shows every sample once."""

import pytest

from unit.methods_reference import PAGE, ROOT, SAMPLES, TEMPLATE, render, samples_of

# This manifest is a claim with weights and no SpeculativeModel.
WEIGHTS = {"reference-pair"}


@pytest.mark.slow
def test_the_page_is_what_the_generator_writes() -> None:
    again = "run python tests/unit/methods_reference.py"
    assert PAGE.read_text("utf-8") == render(), again


def test_every_sample_is_in_one_section() -> None:
    shown = [sample for sample, _ in samples_of(TEMPLATE.read_text("utf-8"))]
    files = {path.stem for path in (ROOT / SAMPLES).glob("*.yaml")}
    assert sorted(shown) == sorted(files - WEIGHTS)
