"""The base class of all parts of the spec, and the field types that they share."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from typing_extensions import override

# A value that Kubernetes defines. The operator copies it to the children; it reads only the fields
# that are checked below.
PodShaped = dict[str, Any]
# The field of an affinity to which the operator adds a term for a volume of a single node.
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
    """A part of the spec: immutable, with camelCase names in the API; ignores unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )

    @override
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return this immutable value itself: pydantic copies the defaults at each parse."""
        return self


class Reference(Value):
    """A name in the resource's own namespace."""

    name: str


class SecretKey(Value):
    """One key of a Secret in the resource's own namespace."""

    name: str
    key: str = "token"
