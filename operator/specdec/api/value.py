"""The base of every part of the API's spec."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

# Passed through to the children unread, except for the fields that are checked below.
PodShaped = dict[str, Any]
# The terms of an affinity to which a volume of one node adds its own.
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _with_quantities(value: PodShaped) -> PodShaped:
    for name in ("requests", "limits"):
        if not isinstance(value.get(name, {}), dict):
            raise ValueError(f"{name} must map resource names to quantities, as in memory: 2Gi")  # noqa: TRY004
    return value


def _with_terms(value: PodShaped) -> PodShaped:
    near = value.get("podAffinity", {})
    if not isinstance(near, dict):
        raise ValueError(f"podAffinity must be an object with {REQUIRED} or preferred terms")  # noqa: TRY004
    if not isinstance(near.get(REQUIRED, []), list):
        raise ValueError(f"podAffinity.{REQUIRED} must be a list of terms")  # noqa: TRY004
    return value


# The CustomResourceDefinition has the same rules. These checks hold for files that no API server
# has validated, and for resources that were stored under an older definition.
Resources = Annotated[PodShaped, AfterValidator(_with_quantities)]
Affinity = Annotated[PodShaped, AfterValidator(_with_terms)]


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
