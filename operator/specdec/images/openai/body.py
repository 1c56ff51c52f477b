"""Parse and validate the JSON of a request's body."""

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, TypeVar

import pydantic
from pydantic_core import ErrorDetails, from_json

from specdec.images.openai.errors import ApiError
from specdec.images.openai.models import Common
from specdec.images.openai.neutral import Table
from specdec.servers.openai_body import TOO_MANY, VALUES

_SHOWN = 80
# What pydantic writes in its rules, and the terms of JSON.
_RULES = {
    "Input should": "it should",
    "valid dictionary": "valid object",
    "be False": "be false",
    "be True": "be true",
}
_Model = TypeVar("_Model", bound=pydantic.BaseModel)
_Common = TypeVar("_Common", bound=Common)
# Each match ends behind the next character that begins a value: a comma or an opening bracket
# outside of texts. It also matches a rest without one and a text without an end, because a search
# that fails would begin again at each character.
_BEFORE_VALUE = re.compile(
    rb'(?:[^",\[{]++|"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z))*+(?:[,\[{]|\Z)', re.DOTALL
)
_MARKS = b",[{"


def parse(body: bytes, model: type[_Common]) -> _Common:
    """Parse and validate the JSON of a body.

    Raises:
        ApiError: no JSON, JSON that is nested too deeply or has too many values, or an invalid
            value.
    """
    return validated(_without_neutral(read(body), model.neutral), model)


def _without_neutral(body: dict[str, Any], neutral: Table) -> dict[str, Any]:
    """The body without the keys of a table.

    Raises:
        ApiError: a key of the table has a value that is not neutral.
    """
    result = {}
    for key, value in body.items():
        values, reason = neutral.get(key, ((), ""))
        if not reason:
            result[key] = value
        elif value is not None and not any(_equal(value, item) for item in values):
            fix = "" if ";" in reason else "; leave it out"
            raise ApiError(f"{key} is {shown(value)}, but {reason}{fix}", param=key)
    return result


def _equal(value: Any, neutral: Any) -> bool:
    """Equal as JSON, where true is not 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def validated(value: dict[str, Any], model: type[_Model]) -> _Model:
    """Validate the JSON object of a body.

    Raises:
        ApiError: an invalid value.
    """
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False)
        # Each type of a union adds an error. The error of the type that fits best has the longest
        # location.
        alternatives = [item for item in errors if item["loc"][:1] == errors[0]["loc"][:1]]
        raise _invalid(max(alternatives, key=_fit), value) from None


def read(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        ApiError: no JSON, JSON that is nested too deeply or has too many values, or no object.
    """
    # A value needs up to a hundred times the memory of its text, and an error about it more.
    if _has_more_values(body, VALUES):
        raise ApiError(
            f"the body has more than {VALUES} JSON values; send shorter lists and objects"
        )
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(f"the body is no JSON that can be read ({error}); send an object") from None
    if not isinstance(value, dict):
        raise ApiError(f"the body is {shown(value)}; send an object")
    return value


def _fit(error: ErrorDetails) -> tuple[bool, int]:
    return error["type"] == TOO_MANY, len(error["loc"])


def encoded(value: Mapping[str, Any]) -> bytes:
    """JSON in one line.

    Raises:
        ApiError: a number is infinite, as the JSON of a client writes it with a large exponent.
    """
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        raise ApiError("the body has a number that is too large; send a smaller one") from None


def _has_more_values(body: bytes, limit: int) -> bool:
    """Whether the JSON may have more values than the limit; an empty list counts as two."""
    if sum(map(body.count, _MARKS)) < limit:
        return False
    matches = _BEFORE_VALUE.finditer(body)
    # Two further matches have no such character: the rest of the body, and the empty rest of that.
    return sum(1 for _ in islice(matches, limit + 2)) > limit + 1


def _invalid(error: ErrorDetails, body: dict[str, Any]) -> ApiError:
    """One sentence for an error of pydantic."""
    field = ".".join(_path(error, body))
    param = shown(str(error["loc"][0])) if error["loc"] else None
    if error["type"] == "extra_forbidden":
        return ApiError(
            f"{shown(field)} is no parameter of this endpoint; leave it out",
            code="unknown_parameter",
            param=param,
        )
    if error["type"] == "missing":
        return ApiError(f"{field} is missing; send it", code="missing_parameter", param=param)
    if error["type"] == TOO_MANY:
        return ApiError(f"{field or 'the body'} {error['msg']}", param=param)
    rule = error["msg"]
    for python, json_ in _RULES.items():
        rule = rule.replace(python, json_)
    return ApiError(f"{field} is {shown(error['input'])}, but {rule}", param=param)


def _path(error: ErrorDetails, body: Any) -> list[str]:
    """The keys that lead to an invalid value, without the names of types that pydantic adds."""
    keys = []
    for part in error["loc"]:
        is_key = isinstance(body, dict) and part in body
        if is_key or (isinstance(body, list) and isinstance(part, int)):
            keys.append(str(part))
            body = body[part]
    return [*keys, str(error["loc"][-1])] if error["type"] == "missing" else keys


def shown(value: Any) -> str:
    """A JSON value for a message: short, and without the contents of lists and objects."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value) or "''"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
