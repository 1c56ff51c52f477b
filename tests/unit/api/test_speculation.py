"""The block of a method: the one in the spec, or its defaults."""

import pytest

from specdec.api.speculation import Speculation


@pytest.mark.parametrize(
    ("spec", "control"),
    [
        ({"method": "NGram"}, "Bls"),
        ({"method": "NGram", "nGram": {"minMatch": 3}}, "Bls"),
        ({"method": "Lookahead"}, "Engine"),
        ({"method": "Eagle"}, "Engine"),
        ({"method": "None"}, "Engine"),
    ],
)
def test_method_without_a_block_has_its_defaults(spec: dict[str, object], control: str) -> None:
    assert Speculation.model_validate(spec).block.control == control
