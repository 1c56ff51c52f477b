"""The block of a method: the one in the spec, or its defaults."""

import pytest

from specdec.api.speculation import Speculation

LIMITS = {"maxBatchSize": 1, "maxInputLen": 8, "maxSeqLen": 16, "maxNumTokens": 16}
DRAFT = {"draft": {"source": {"pvc": {"claimName": "models", "path": "draft"}}, "limits": LIMITS}}


@pytest.mark.parametrize(
    ("spec", "in_engine"),
    [
        ({"method": "NGram"}, False),
        ({"method": "NGram", "nGram": {"minMatch": 3}}, False),
        ({"method": "Lookahead"}, True),
        ({"method": "Eagle"}, True),
        ({"method": "None"}, True),
    ],
)
def test_method_without_a_block_has_its_defaults(spec: dict[str, object], in_engine: bool) -> None:
    assert Speculation.model_validate(spec).block.in_engine is in_engine


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({"method": "NGram"}, "Adaptive"),
        ({"method": "NGram", "draftLengthPolicy": {"type": "Fixed"}}, "Fixed"),
        ({"method": "DraftTarget", "draftTarget": DRAFT}, "Fixed"),
        ({"method": "DraftTarget", "draftTarget": {**DRAFT, "lookup": {}}}, "Adaptive"),
        ({"method": "Eagle"}, "Fixed"),
    ],
)
def test_lookups_are_adaptive_by_default(spec: dict[str, object], policy: str) -> None:
    assert Speculation.model_validate(spec).length_policy.type == policy
