"""External strings and plans are written unchanged, or refused."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from specdec.triton import pbtxt
from specdec.triton.pbtxt import Batching, ModelConfig
from specdec.triton.plan import DraftLengths
from specdec.triton.repository import (
    ModelPlan,
    PlanError,
    render,
)
from support.effort import examples
from unit.triton.repositories import LOOKAHEAD, PLAN, parameters


# 200 examples of 50 strings make 10 000 hostile strings, which take seconds.
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.text(), min_size=50, max_size=50))
def test_hostile_strings_come_back_unchanged(values: list[str]) -> None:
    keys = [f"{index}" for index in range(len(values))]
    text = pbtxt.model(
        ModelConfig(
            name=values[0],
            backend="python",
            max_batch_size=1,
            inputs=(),
            outputs=(),
            parameters=tuple(zip(keys, values, strict=True)),
            batching=Batching(),
        )
    )
    parsed = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert text.isascii()
    assert parsed.name == values[0]
    assert {k: v.string_value for k, v in parsed.parameters.items()} == dict(
        zip(keys, values, strict=True)
    )
    # No string has created another field.
    fields = {field.name for field, _ in parsed.ListFields()}
    assert fields <= {
        "name",
        "backend",
        "max_batch_size",
        "instance_group",
        "dynamic_batching",
        "parameters",
    }


def test_a_hostile_path_changes_nothing_else() -> None:
    hostile = '"} parameters { key: "x" value { string_value: "\\\n{{ 7 * 7 }}${x}\x00é'
    files = render(replace(PLAN, target=ModelPlan(hostile), tokenizer_dir=hostile))
    actual = parameters(files, "tensorrt_llm")
    assert actual["gpt_model_path"] == actual["tokenizer_dir"] == hostile
    assert actual.keys() == parameters(render(PLAN), "tensorrt_llm").keys()


def test_half_a_character_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"half of a character \(a lone surrogate\) at position 1; remove it$"
    ):
        render(replace(PLAN, tokenizer_dir="a\ud800"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "1.2.0"}, "version is '1.2.0'"),
        ({"max_batch_size": 0}, "max_batch_size is 0: set it to 1 or more"),
        ({"max_queue_size": 0}, "max_queue_size is 0: set it to 1 or more"),
        ({"draft": None}, "draft_tokens is 4 without draft and lookup_min_match"),
        ({"draft_tokens": 9}, "draft_tokens is 9, above max_draft_tokens 8"),
        ({"adaptive": DraftLengths(0, 9)}, "adaptive draft lengths are 0 to 9"),
        ({"adaptive": DraftLengths(3, 2)}, "adaptive draft lengths are 3 to 2"),
    ],
)
def test_plans_that_no_repository_can_express_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message.split("'")[0]):
        replace(PLAN, **changes)


def test_a_key_of_the_method_that_the_release_does_not_read_is_refused() -> None:
    message = "version is 0.18.0, which does not read lookahead_window_size"
    with pytest.raises(PlanError, match=message):
        render(replace(LOOKAHEAD, version="0.18.0"))
