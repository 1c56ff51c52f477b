"""Versions are compared by number."""

import pytest

from specdec.api.versions import at_least, numbers


def test_versions_are_compared_by_number() -> None:
    assert at_least("10.0", "8.9")
    assert not at_least("8.6", "8.9")
    assert at_least("9.0", "9.0")
    assert at_least("0.32.0", "0.27.1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("26.07", (26, 7)), ("1.3.0rc5", (1, 3, 0)), ("0.27.1+cpu", (0, 27, 1)), ("9", (9,))],
)
def test_suffix_of_a_version_is_no_number_of_it(text: str, expected: tuple[int, ...]) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize("text", ["", "v1.2", "rc1"])
def test_text_without_a_number_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="give dotted numbers, such as"):
        numbers(text)
