"""The values and items of a body are counted before anything is made of them."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specdec.images.openai import body as bodies
from specdec.images.openai.body import parse
from specdec.images.openai.errors import ApiError
from specdec.images.openai.models import Chat, Completion
from specdec.servers.openai_body import KEYS, MESSAGES, PARTS, STOP, TOOL_CALLS, TOOLS, VALUES

USER = {"role": "user", "content": "hi"}
TEXTS = st.text(st.sampled_from('",[]{}\\a\u00e9 '), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
)


def message(body: bytes, model: Any = Chat) -> str:
    with pytest.raises(ApiError) as raised:
        parse(body, model)
    assert raised.value.status == 400
    return str(raised.value)


def count(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, items))


def containers(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + sum(map(containers, items))


@given(JSON, st.booleans())
def test_values_are_counted_outside_of_texts(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert bodies._has_more_values(text, count(value) - 1)
    assert not bodies._has_more_values(text, count(value) + containers(value))


@pytest.mark.parametrize("rest", [b'"', b'"\\', b'"a\\"', b"\\", b"]" * 9, b'"",' * 9, b"a" * 9])
def test_broken_json_is_counted_in_one_pass(rest: bytes) -> None:
    """A search that failed would begin again at each character: 1 MB would take a minute."""
    text = b"[1,2," + rest * 200_000
    assert bodies._has_more_values(text, 2)
    assert not bodies._has_more_values(text, len(text))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[' + b"1," * 750_000 + b"1]}",
        b'{"model":"m","messages":[{"role":"user","content":[' + b"1," * 750_000 + b"1]}]}",
        b'{"model":"m","messages":[],"stop":[' + b'"",' * 750_000 + b'""]}',
        b'{"model":"m","messages":[],"tools":[' + b"{}," * 750_000 + b"{}]}",
        b'{"model":"m","messages":' + b"[" * 750_000,
        b'{"model":"m","messages":[],"user":{' + b'"a":1,' * 750_000 + b'"a":1}}',
    ],
    ids=["messages", "content", "stop", "tools", "nested", "keys"],
)
def test_a_body_with_too_many_values_needs_no_memory(body: bytes) -> None:
    """Such a body of 1.5 MB needed 1.1 GB and stopped all answers for 4 s."""
    tracemalloc.start()
    try:
        assert f"the body has more than {VALUES} JSON values" in message(body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"messages": [1] * (MESSAGES + 1)}, f"messages has {MESSAGES + 1} items, more than"),
        ({"messages": [1] * MESSAGES}, "messages.0 is 1, but"),
        (
            {"messages": [{"role": "user", "content": [1] * (PARTS + 1)}]},
            f"messages.0.content has {PARTS + 1} items, more than the limit of {PARTS}",
        ),
        (
            {"messages": [{**USER, "tool_calls": [1] * (TOOL_CALLS + 1)}]},
            f"messages.0.tool_calls has {TOOL_CALLS + 1} items",
        ),
        ({"messages": [USER], "tools": [{}] * (TOOLS + 1)}, f"tools has {TOOLS + 1} items"),
        ({"messages": [USER], "tools": [{}] * TOOLS}, "tools.0.type is missing"),
        ({"messages": [USER], "stop": [""] * (STOP + 1)}, f"stop has {STOP + 1} strings"),
        (
            {"messages": [USER], **{f"x{number}": 1 for number in range(1000)}},
            f"the body has 1002 keys, more than the limit of {KEYS}",
        ),
    ],
)
def test_a_list_with_too_many_items_is_one_sentence(fields: Any, sentence: str) -> None:
    assert sentence in message(json.dumps({"model": "m", **fields}).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [1] * MESSAGES},
        {"messages": [{"role": "user", "content": [1] * PARTS}]},
        {"messages": [{**USER, "tool_calls": [1] * TOOL_CALLS}]},
        {"messages": [USER], "tools": [1] * TOOLS},
        {"messages": [USER], "stop": [""] * STOP},
    ],
    ids=["messages", "parts", "tool-calls", "tools", "stop"],
)
def test_validation_of_a_list_ends_at_its_first_error(fields: Any) -> None:
    """Each error needs a kilobyte. A union has an error for each of its types."""
    with pytest.raises(ValidationError) as raised:
        Chat.model_validate({"model": "m", **fields})
    assert raised.value.error_count() <= 2


def test_a_long_text_with_many_commas_is_accepted() -> None:
    text = "a,[{" * 250_000
    assert parse(json.dumps({"model": "m", "prompt": text}).encode(), Completion).prompt == text
