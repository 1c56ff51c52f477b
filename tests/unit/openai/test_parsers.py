"""Parsers split reasoning and tool calls from an answer, however it is cut into pieces."""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.images.openai.parsers import REASONING, TOOLS, reasoning
from specdec.images.openai.parsers.split import (
    Call,
    Content,
    Event,
    Parser,
    Reasoning,
    held,
    joined,
)
from specdec.images.openai.parsers.stop import Stop

CALL = '{"name": "weather", "arguments": {"city": "Köln", "days": [1, 2]}}'
LLAMA_CALL = '{"name": "weather", "parameters": {"city": "Köln"}}'
PARSERS: dict[str, Callable[[], Parser]] = {
    **{name: partial(reasoning, name, "", with_tools=False) for name in REASONING},
    **{name: partial(make, {"weather", "a"}) for name, make in TOOLS.items()},
    "qwen3 with tools": partial(reasoning, "qwen3", "<|im_start|>assistant\n", with_tools=True),
}
FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<|python_tag|>", "<th", "</", "<", ">",
    "\n", "\n\n", " ", "text", "ä😀", CALL, LLAMA_CALL, "{", "}", '{"', "name", '"', ";", "[1]",
    "tool_call>",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)


def parsed(parser: Parser, pieces: Sequence[str]) -> list[Event]:
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.end()])


def cut(text: str, at: Sequence[int]) -> list[str]:
    borders = [0, *sorted(at), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


def call(text: str) -> Call:
    value = json.loads(text)
    arguments = value.get("arguments", value.get("parameters"))
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("deepseek_r1", "<think>\nhm\n</think>\n\nYes.", [Reasoning("hm\n"), Content("Yes.")]),
        ("deepseek_r1", "hm</think>Yes.", [Reasoning("hm"), Content("Yes.")]),
        ("deepseek_r1", "hm </thin", [Reasoning("hm </thin")]),
        ("deepseek_r1", "a</think>b</think>", [Reasoning("a"), Content("b</think>")]),
        ("qwen3", " <think>hm</think>Yes.", [Reasoning("hm"), Content("Yes.")]),
        ("qwen3", "Yes. <think>", [Content("Yes. <think>")]),
        ("qwen3", "<thi", [Content("<thi")]),
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>\n", [call(CALL)]),
        (
            "hermes",
            f"I ask.\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
            [Content("I ask."), call(CALL), call(CALL)],
        ),
        ("hermes", f"<tool_call>{CALL}", [call(CALL)]),
        ("hermes", "<tool_call>no</tool_call> ", [Content("<tool_call>no</tool_call> ")]),
        ("hermes", "<tool_call>[1", [Content("<tool_call>[1")]),
        ("hermes", "a < b", [Content("a < b")]),
        ("llama3_json", LLAMA_CALL, [call(LLAMA_CALL)]),
        ("llama3_json", f"<|python_tag|>{LLAMA_CALL}; {LLAMA_CALL}", [call(LLAMA_CALL)] * 2),
        ("llama3_json", '{"answer": 1}', [Content('{"answer": 1}')]),
        ("llama3_json", f"{LLAMA_CALL} done", [Content(f"{LLAMA_CALL} done")]),
        ("llama3_json", '{"name": "Alice", "age": 3}', [Content('{"name": "Alice", "age": 3}')]),
        (
            "llama3_json",
            f'{LLAMA_CALL}; {{"name": "no"}}',
            [Content(f'{LLAMA_CALL}; {{"name": "no"}}')],
        ),
        (
            "qwen3 with tools",
            f"<think>hm<tool_call>{CALL}</tool_call>",
            [Reasoning("hm"), Content(f"<tool_call>{CALL}</tool_call>")],
        ),
        ("llama3_json", '{"name": 5}', [Content('{"name": 5}')]),
        ("llama3_json", '{"name": "a", "arguments": "{}"}', [Call("a", "{}")]),
        ("llama3_json", "", []),
    ],
)
def test_text_is_split(name: str, text: str, expected: list[Event]) -> None:
    assert parsed(PARSERS[name](), [text]) == expected
    assert parsed(PARSERS[name](), list(text)) == expected


@pytest.mark.parametrize(
    ("name", "prompt", "text", "expected"),
    [
        # The template opens the tag: Qwen3 2507 and DeepSeek-R1.
        ("qwen3", "<|im_start|>assistant\n<think>\n", "hm</think>Yes.", True),
        ("deepseek_r1", "<\uff5cAssistant\uff5c><think>\n", "hm</think>Yes.", True),
        # The template closes it where thinking is off: Qwen3 and DeepSeek-V3.1.
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Yes.", False),
        ("deepseek_r1", "<\uff5cAssistant\uff5c></think>", "Yes.", False),
        # The template did not write a tag in a message of the user.
        ("qwen3", "<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", "Yes.", False),
    ],
)
def test_prompt_decides_whether_a_thought_is_open(
    name: str, prompt: str, text: str, expected: bool
) -> None:
    made = partial(reasoning, name, prompt, with_tools=False)
    thoughts = [Reasoning("hm")] if expected else []
    assert parsed(made(), [text]) == [*thoughts, Content("Yes.")]
    assert parsed(made(), list(text)) == [*thoughts, Content("Yes.")]


@pytest.mark.parametrize("name", PARSERS)
@given(text=TEXTS, data=st.data())
def test_every_cut_gives_the_same_result(name: str, text: str, data: st.DataObject) -> None:
    at = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    assert parsed(PARSERS[name](), cut(text, at)) == parsed(PARSERS[name](), [text])


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_ten_thousand_random_cuts_give_the_same_result(name: str) -> None:
    draw = random.Random(name)
    for _ in range(100):
        text = "".join(draw.choices(FRAGMENTS, k=draw.randrange(1, 14)))
        whole = parsed(PARSERS[name](), [text])
        for _ in range(100):
            at = [draw.randint(0, len(text)) for _ in range(draw.randrange(1, 12))]
            assert parsed(PARSERS[name](), cut(text, at)) == whole, (text, at)


@pytest.mark.parametrize("name", ["hermes", "deepseek_r1", "qwen3"])
def test_plain_text_is_returned_at_once(name: str) -> None:
    parser = PARSERS[name]()
    texts = [event.text for event in parser.feed("Hello") if not isinstance(event, Call)]
    assert texts == ["Hello"]


def test_json_that_is_no_call_is_not_held_until_the_end() -> None:
    parser = PARSERS["llama3_json"]()
    assert parser.feed('{"ans') == [Content('{"ans')]


STOPS = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=4)


@given(text=st.text("ab<c", max_size=24), stop=STOPS, data=st.data())
def test_stop_strings_end_the_text_alike_for_every_cut(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    at = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    search = Stop(stop)
    result = "".join(search.feed(piece) for piece in cut(text, at)) + search.end()
    assert (result, search.stopped) == expected_stop(text, stop)


def expected_stop(text: str, stop: list[str]) -> tuple[str, bool]:
    """Return the text before the first complete stop string, and whether there is one."""
    for end in range(1, len(text) + 1):
        lengths = [len(word) for word in stop if text[:end].endswith(word)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def test_only_a_possible_begin_of_a_stop_string_is_held() -> None:
    search = Stop(["###"])
    assert search.feed("text #") == "text "
    assert search.feed("1") == "#1"
    assert held("ab", ("bcd", "xyz")) == 1
