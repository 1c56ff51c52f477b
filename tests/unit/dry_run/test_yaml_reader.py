"""Unquoted YAML scalars become the same values as in kubectl."""

from typing import Any

import pytest

from specdec.tools.dry_run.yaml_reader import documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1000000000),
        ("1.5e3", 1500),
        ("2.0", 2),
        (".5", 0.5),
        ("1e30", 1e30),
        ("0.19", 0.19),
        ("1_000", 1000),
        ("0o17", 15),
        ("017", 15),
        ("09", 9),
        ("0x1f", 31),
        ("-0b11", -3),
        ("9223372036854775808", float(2**63)),
        ("0.19.0", "0.19.0"),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("y", True),
        ("Off", False),
        ("yes", True),
        ("TRUE", True),
        ("'yes'", "yes"),
        ("~", None),
        ("", None),
        ("=", "="),
        ("1Gi", "1Gi"),
        ("+", "+"),
        (".", "."),
    ],
)
def test_plain_text(text: str, value: Any) -> None:
    (document,) = documents(f"a: {text}\n")
    assert document == {"a": value}
    assert type(document["a"]) is type(value)


def test_keys_are_texts_and_anchors_are_merged() -> None:
    (document,) = documents("x: &x {a: 1}\nz: {<<: *x, b: 2}\n2: true\non: off\n")
    assert document == {"x": {"a": 1}, "z": {"a": 1, "b": 2}, "2": True, "true": False}


@pytest.mark.parametrize("text", [".inf", ".nan", "-.Inf"])
def test_number_without_a_json_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        documents(f"a: {text}\n")
