"""Run the tests of the BLS's own crates, `operator/bls`; report each by its name."""

import pytest

from support import bls


@pytest.mark.slow
def test_crates(subtests: pytest.Subtests) -> None:
    tests = bls.run_tests()
    assert len(tests) > 150
    for test in tests:
        with subtests.test(test.name):
            assert test.passed, test.output
