"""Chat messages become prompts: checkpoint files, messages, and the template process."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from specdec.images.openai import checkpoint, template_process
from specdec.images.openai.chat import variables, without_first_token
from specdec.images.openai.checkpoint import ChatFormat, CheckpointError
from specdec.images.openai.errors import ApiError
from specdec.images.openai.models import Chat
from specdec.images.openai.template import Templates, TemplateStartError

HELLO = [{"role": "user", "content": "hello"}]


@asynccontextmanager
async def templates(source: str, **limits: Any) -> AsyncIterator[Templates]:
    made = Templates(ChatFormat(source), **limits)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def rendered(source: str, **values: Any) -> str:
    async with templates(source) as made:
        return await made.render({"messages": HELLO, **values})


def chat(messages: list[dict[str, Any]], **fields: Any) -> Chat:
    return Chat.model_validate({"model": "m", "messages": messages, **fields})


async def test_template_of_hugging_face_is_rendered() -> None:
    source = (
        "{{- bos_token }}\n{% for m in messages %}\n  {% if m.role == 'skip' %}{% continue %}"
        "{% endif %}\n<{{ m.role }}>{% generation %}{{ m.content | trim }}{% endgeneration %}\n"
        "{% endfor %}\n{{ tools | tojson }}{{ strftime_now('%Y') | length }}"
    )
    result = await rendered(source, bos_token="<s>", tools=[{"a": "ä<"}])
    assert result.split() == ["<s>", '<user>hello[{"a":', '"ä<"}]4']


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        pytest.param(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "1 s",
            marks=pytest.mark.slow,
        ),
        ("{{ 'x' * 10 ** 11 }}", "too much memory"),
        (
            "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
            "more than 4194304 characters",
        ),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ ''.__class__.__subclasses__() }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('id') }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception('no ' ~ messages[0].role) }}", "refuses the messages: no user"),
        ("{{ messages[0].content + 1 }}", "refuses the messages"),
        ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "nested too deeply"),
        ("{# nothing #}", "an empty prompt"),
    ],
)
async def test_template_without_end_or_manners_is_one_sentence(source: str, sentence: str) -> None:
    async with templates(source, seconds=1) as made:
        with pytest.raises(ApiError, match=r".*") as caught:
            await made.render({"messages": HELLO})
        assert sentence in str(caught.value)
        assert caught.value.status == 400


@pytest.mark.slow
async def test_next_conversation_is_rendered_after_a_loop() -> None:
    source = (
        "{% if messages | length > 1 %}{% for a in range(99999) %}{% for b in range(99999) %}"
        "{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}"
    )
    async with templates(source, seconds=0.5) as made:
        with pytest.raises(ApiError, match=r"took more than 0.5 s"):
            await made.render({"messages": HELLO * 2})
        assert await made.render({"messages": HELLO}) == "hello"


async def test_template_that_is_no_template_is_reported_at_the_start() -> None:
    with pytest.raises(TemplateStartError, match=r"the chat template has an error"):
        await Templates(ChatFormat("{% for %}")).start()


async def test_template_for_tools_is_used_with_tools() -> None:
    made = Templates(ChatFormat("plain", "with tools"))
    await made.start()
    assert await made.render({"tools": None}) == "plain"
    assert await made.render({"tools": [1]}) == "with tools"
    await made.close()


async def test_checkpoint_without_template_has_no_chat() -> None:
    with pytest.raises(ApiError, match=r"no chat template; send the prompt to /v1/completions"):
        await Templates(ChatFormat()).render({"messages": HELLO})


def test_messages_are_given_as_templates_expect_them() -> None:
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    parts = [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [called], "refusal": None},
        {"role": "tool", "content": "5", "tool_call_id": "c"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = chat(messages, tools=[tool], chat_template_kwargs={"enable_thinking": False})
    given = variables(body, ChatFormat("t", tokens={"bos_token": "<s>"}))
    assert given["messages"][0] == {"role": "system", "content": "be\nbrief"}
    assert given["messages"][1]["tool_calls"][0]["function"] == {
        "name": "f",
        "arguments": {"a": 1},
    }
    assert given["messages"][2]["tool_call_id"] == "c"
    assert given["tools"] == [tool]
    assert (given["bos_token"], given["enable_thinking"]) == ("<s>", False)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"role": "user"}, "messages.0 has no content; send text"),
        ({"role": "tool", "content": "5"}, "messages.0 has no tool_call_id"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "a part of type image_url"),
    ],
)
def test_message_that_cannot_be_read_is_one_sentence(
    message: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ApiError) as caught:
        variables(chat([message]), ChatFormat())
    assert sentence in str(caught.value)


def called(arguments: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ({"role": "assistant", "content": None}, {"content": ""}),
        ({"role": "assistant"}, {"content": ""}),
        ({"role": "assistant", "content": []}, {"content": ""}),
        ({"role": "assistant", "content": None, "refusal": "no"}, {"content": "no"}),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"content": "no"},
        ),
        ({"role": "tool", "content": None, "tool_call_id": "c"}, {"content": ""}),
        ({"role": "function", "name": "f", "content": "5"}, {"role": "tool", "name": "f"}),
        (
            {"role": "assistant", "content": "x", "reasoning": "hm"},
            {"reasoning_content": "hm"},
        ),
        (
            {"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"},
            {"reasoning_content": "b"},
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"tool_calls": [{**called(""), "id": "", "function": {"name": "f", "arguments": {}}}]},
        ),
    ],
)
def test_history_that_openai_accepts_is_rendered(
    message: dict[str, Any], given: dict[str, Any]
) -> None:
    [rendered] = variables(chat([message]), ChatFormat())["messages"]
    assert given.items() <= rendered.items()


@pytest.mark.parametrize("text", ["{'city':", "[1]", '"x"', "5", "[" * 9999])
def test_arguments_that_are_no_object_go_back_to_the_model_as_text(text: str) -> None:
    message = {"role": "assistant", "tool_calls": [called(text)]}
    [rendered] = variables(chat([message]), ChatFormat())["messages"]
    assert rendered["tool_calls"][0]["function"]["arguments"] == {"arguments": text}


@pytest.mark.parametrize("text", ["", "null", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    message = {"role": "assistant", "tool_calls": [called(text)]}
    [rendered] = variables(chat([message]), ChatFormat())["messages"]
    assert rendered["tool_calls"][0]["function"]["arguments"] == {}


def test_reserved_variables_cannot_be_replaced() -> None:
    with pytest.raises(ApiError, match=r"chat_template_kwargs sets messages"):
        variables(chat(HELLO, chat_template_kwargs={"messages": []}), ChatFormat())


def write(folder: Path, config: dict[str, Any], tokenizer: dict[str, Any] | None = None) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")


def test_template_and_tokens_are_read_from_a_checkpoint(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}]
    processors = [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": single}]
    write(
        tmp_path,
        {"chat_template": named, "bos_token": {"content": "<s>"}, "eos_token": "</s>"},
        {"post_processor": {"type": "Sequence", "processors": processors}, "model": {}},
    )
    form = checkpoint.read(tmp_path)
    assert (form.template, form.tool_template) == ("a", "b")
    assert form.tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert form.first_token == "<s>"
    # The server's tokenizer adds the first token, so the prompt must not contain it.
    assert without_first_token("<s>hi", form, adds_special_tokens=True) == "hi"
    assert without_first_token("<s>hi", form, adds_special_tokens=False) == "<s>hi"
    (tmp_path / "chat_template.jinja").write_text("c", "utf-8")
    assert checkpoint.read(tmp_path).template == "c"
    other = tmp_path / "other"
    other.write_text("d", "utf-8")
    assert checkpoint.read(tmp_path, other).template == "d"


def test_tokenizer_without_first_token_adds_none(tmp_path: Path) -> None:
    write(tmp_path, {}, {"post_processor": {"type": "ByteLevel"}, "model": {}})
    assert checkpoint.read(tmp_path) == ChatFormat()


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{", "utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json is no JSON"):
        checkpoint.read(tmp_path)
    write(tmp_path, {})
    with pytest.raises(CheckpointError, match=r"absent cannot be read"):
        checkpoint.read(tmp_path, tmp_path / "absent")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "tokenizer.json"])
def test_further_end_tokens_are_read_from_a_checkpoint(tmp_path: Path, file: str) -> None:
    texts = {151643: ("<|endoftext|>", True), 151645: ("<|im_end|>", True), 9: ("<eot>", False)}
    tokens = {id_: {"content": text, "special": is_} for id_, (text, is_) in texts.items()}
    config: dict[str, Any] = {"eos_token": "<|im_end|>"}
    if file == "tokenizer_config.json":
        config["added_tokens_decoder"] = tokens
    else:
        added = [{"id": id_, **token} for id_, token in tokens.items()]
        (tmp_path / file).write_text(json.dumps({"added_tokens": added, "model": {}}), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    assert checkpoint.ends(tmp_path) == {}
    (tmp_path / "config.json").write_text('{"eos_token_id": [9]}', "utf-8")
    assert checkpoint.ends(tmp_path) == {"<eot>": False}
    generation = tmp_path / "generation_config.json"
    generation.write_text('{"eos_token_id": [151645, 151643]}', "utf-8")
    assert checkpoint.ends(tmp_path) == {"<|endoftext|>": True}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("tojson", '{"b": "é<", "a": [1, 2]}'),
        ("tojson(separators=(',', ':'))", '{"b":"é<","a":[1,2]}'),
        ("tojson(sort_keys=true)", '{"a": [1, 2], "b": "é<"}'),
        ("tojson(true)", '{"b": "\\u00e9<", "a": [1, 2]}'),
        ("tojson(false, 1)", '{\n "b": "é<",\n "a": [\n  1,\n  2\n ]\n}'),
    ],
)
def test_json_of_templates_is_that_of_transformers(call: str, expected: str) -> None:
    made = template_process.environment().from_string(f"{{{{ x | {call} }}}}")
    assert made.render(x={"b": "é<", "a": [1, 2]}) == expected


def test_further_files_of_a_checkpoint_are_read(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text('{"chat_template": "older"}', "utf-8")
    tokens = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(tokens), "utf-8")
    write(tmp_path, {"eos_token": "<end>"})
    form = checkpoint.read(tmp_path)
    assert (form.template, form.tokens) == ("older", {"bos_token": "<s>", "eos_token": "<end>"})
    (tmp_path / "chat_template.jinja").write_text("newer", "utf-8")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools", "utf-8")
    form = checkpoint.read(tmp_path)
    assert (form.template, form.tool_template) == ("newer", "tools")
