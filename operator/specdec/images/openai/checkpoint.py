"""Read the chat template and the special tokens of a checkpoint's tokenizer."""

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from specdec.images.openai.sampling import Defaults

_GENERATION = "generation_config.json"
_ENDS = (_GENERATION, "config.json")
_CONFIG = "tokenizer_config.json"
_TOKENS_MAP = "special_tokens_map.json"
_TEMPLATE, _OLDER = "chat_template.jinja", "chat_template.json"
_MORE_TEMPLATES = "additional_chat_templates"
_TOKENIZER = "tokenizer.json"
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
# Post-processor and added tokens stand before the vocabulary, and are small.
_VALUE_BYTES = 256 << 10
_LIMIT_BYTES = 4 << 20


class CheckpointError(Exception):
    """A file of the checkpoint cannot be used; the message names it."""


@dataclass(frozen=True)
class ChatFormat:
    """How a checkpoint writes conversations.

    Attributes:
        template: Jinja's source; None if the checkpoint has none.
        tool_template: used instead if a request has tools; None if there is only one template.
        tokens: texts of special tokens by their names, as templates read them.
        first_token: text of the token with which the tokenizer begins every prompt, or empty.
    """

    template: str | None = None
    tool_template: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)
    first_token: str = ""


def read(folder: Path, template_file: Path | None = None) -> ChatFormat:
    """Read the format from a tokenizer's directory.

    Args:
        folder: the directory.
        template_file: a template that replaces the checkpoint's.

    Raises:
        CheckpointError: a file that exists but cannot be read, or a missing directory.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no directory; name the tokenizer's directory")
    config = _object(folder / _CONFIG)
    named = _object(folder / _TOKENS_MAP) | config
    tokens = {name: text for name in _TOKENS if (text := _token(named.get(name)))}
    templates = _templates(folder, config, template_file)
    default = templates.get("default")
    return ChatFormat(
        template=default,
        tool_template=templates.get("tool_use"),
        tokens=tokens,
        first_token=_first_token(folder / _TOKENIZER),
    )


def defaults(folder: Path) -> Defaults:
    """Read the sampling parameters that the checkpoint recommends.

    Raises:
        CheckpointError: the file cannot be used.
    """
    path = folder / _GENERATION
    try:
        return Defaults.model_validate(_object(path))
    except pydantic.ValidationError as error:
        [*_, name] = error.errors()[0]["loc"]
        raise CheckpointError(
            f"{path} has a {name} that no server takes; correct it, or let the service decode "
            "greedily by default"
        ) from error


def ends(folder: Path) -> dict[str, bool]:
    """The end tokens besides the tokenizer's own: texts, and whether answers leave them out.

    Most current checkpoints have several, and an engine knows one.

    Raises:
        CheckpointError: a file cannot be used.
    """
    config = _object(folder / _CONFIG)
    listed = (_object(folder / file).get("eos_token_id") for file in _ENDS)
    ids = next((ids for ids in listed if ids is not None), None)
    added = _value(folder / _TOKENIZER, b'"added_tokens"')
    named = config.get("added_tokens_decoder")
    tokens = [item for item in added if isinstance(item, dict)] if isinstance(added, list) else []
    tokens += [{**item, "id": int(key)} for key, item in (named or {}).items()]
    own = _token(config.get("eos_token"))
    return {
        text: bool(item.get("special"))
        for item in tokens
        if item.get("id") in (ids if isinstance(ids, list) else [ids])
        if (text := _token(item)) and text != own
    }


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty without the file."""
    try:
        value = json.loads(_text(path)) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no JSON ({error}); replace the checkpoint") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is no JSON object; replace the checkpoint")
    return value


def _templates(folder: Path, config: Mapping[str, Any], file: Path | None) -> dict[str, str]:
    if file is not None:
        return {"default": _text(file)}
    if (folder / _TEMPLATE).is_file():
        more = (folder / _MORE_TEMPLATES).glob("*.jinja")
        return {**{path.stem: _text(path) for path in more}, "default": _text(folder / _TEMPLATE)}
    value = config.get("chat_template") or _object(folder / _OLDER).get("chat_template")
    if isinstance(value, str):
        return {"default": value}
    items = value if isinstance(value, list) else []
    return {
        str(item.get("name")): item["template"]
        for item in items
        if isinstance(item, dict) and isinstance(item.get("template"), str)
    }


def _token(value: Any) -> str:
    """The text of a token, which is written as a text, or as an object with a text."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _first_token(path: Path) -> str:
    """The special token that the post-processor of tokenizer.json puts before a prompt."""
    return _template_start(_value(path, b'"post_processor"'))


def _value(path: Path, key: bytes) -> Any:
    """The value of a key of tokenizer.json; None without one.

    The file can have tens of megabytes, so only this value is parsed.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(key)
            text = data[at + len(key) : at + len(key) + _VALUE_BYTES] if at >= 0 else b""
    except (OSError, ValueError):
        return None
    source = text.decode(errors="replace").lstrip().removeprefix(":").lstrip()
    try:
        value, _ = json.JSONDecoder().raw_decode(source)
    except (ValueError, RecursionError):
        return None
    return value


def _template_start(processor: Any) -> str:
    if not isinstance(processor, dict):
        return ""
    for part in processor.get("processors") or ():
        if start := _template_start(part):
            return start
    single = processor.get("single")
    first = single[0] if isinstance(single, list) and single else None
    special = first.get("SpecialToken") if isinstance(first, dict) else None
    return _token({"content": special.get("id")}) if isinstance(special, dict) else ""


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            raise CheckpointError(
                f"{path} has more than {_LIMIT_BYTES} bytes; name a file with a chat template"
            )
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); name a readable file") from error
