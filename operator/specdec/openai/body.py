"""Parse and validate the JSON of a request's body."""

from typing import Any, TypeVar

import pydantic
from pydantic_core import ErrorDetails, from_json

from specdec.openai.errors import ApiError
from specdec.openai.models import Common

_SHOWN = 80
_Model = TypeVar("_Model", bound=Common)


def parse(body: bytes, model: type[_Model]) -> _Model:
    """Parse and validate the JSON of a body.

    Raises:
        ApiError: no JSON, JSON that is nested too deeply, or an invalid value.
    """
    value = read(body)
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False)
        # Each type of a union adds an error. The error of the type that fits best has the longest
        # location.
        alternatives = [item for item in errors if item["loc"][:1] == errors[0]["loc"][:1]]
        raise _invalid(max(alternatives, key=lambda item: len(item["loc"])), value) from None


def read(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        ApiError: no JSON, JSON that is nested too deeply, or no object.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(f"the body is no JSON that can be read ({error}); send an object") from None
    if not isinstance(value, dict):
        raise ApiError(f"the body is a JSON {type(value).__name__}; send an object")
    return value


def _invalid(error: ErrorDetails, body: dict[str, Any]) -> ApiError:
    """One sentence for an error of pydantic."""
    field = ".".join(_path(error, body))
    param = str(error["loc"][0]) if error["loc"] else None
    if error["type"] == "extra_forbidden":
        return ApiError(
            f"{field} is no parameter of this endpoint; leave it out",
            code="unknown_parameter",
            param=param,
        )
    if error["type"] == "missing":
        return ApiError(f"{field} is missing; send it", code="missing_parameter", param=param)
    rule = error["msg"].replace("Input should", "it should")
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
    """A value for a message: short, and without the contents of lists and objects."""
    text = f"a {type(value).__name__}" if isinstance(value, dict | list) else str(value) or "''"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
