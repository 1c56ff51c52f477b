"""The tests of the BLS's own code, which is Rust: `operator/speculation/tests`."""

from __future__ import annotations

import pytest

import library


@pytest.mark.slow
def test_the_crate() -> None:
    words = library.run_tests()
    assert not words, words
