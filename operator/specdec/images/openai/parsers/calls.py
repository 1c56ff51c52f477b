"""The JSON of a tool call."""

import json
from typing import Any

from specdec.images.openai.parsers.split import Call


def call(value: Any) -> Call | None:
    """The tool call of a JSON value with `name` and `arguments` (or `parameters`), else None.

    Models write the arguments as an object, or as JSON in a string.
    """
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def parsed(text: str) -> Any:
    """The JSON value of a text; None for text that is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
