"""The base of every part of the API's spec."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

# Passed through to the children unread.
PodShaped = dict[str, Any]


class Value(BaseModel):
    """camelCase on the wire, immutable, newer fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )


class Reference(Value):
    """A name in the resource's own namespace."""

    name: str


class SecretKey(Value):
    """One key of a Secret in the resource's own namespace."""

    name: str
    key: str = "token"
