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
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(f"the body is no JSON that can be read ({error}); send an object") from None
    if not isinstance(value, dict):
        raise ApiError(f"the body is a JSON {type(value).__name__}; send an object")
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        raise _invalid(error.errors(include_url=False)[0]) from None


def _invalid(error: ErrorDetails) -> ApiError:
    """One sentence for an error of pydantic."""
    field = ".".join(str(part) for part in error["loc"] if not str(part).startswith("function-"))
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


def shown(value: Any) -> str:
    """A value for a message: short, and without the contents of lists and objects."""
    text = str(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
