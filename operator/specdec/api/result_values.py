"""The types of fields in the results of Jobs, and the base class of their sections."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from specdec.api.text import line


def _moment(text: str) -> str:
    if not datetime.fromisoformat(text).tzinfo:
        raise ValueError("a time needs a time zone")
    return text


Text = Annotated[str, Field(max_length=1024), AfterValidator(line)]
Short = Annotated[str, Field(max_length=64), AfterValidator(line)]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
# The schema's int32 and int64.
Count = Annotated[int, Field(ge=0, lt=2**31)]
Size = Annotated[int, Field(ge=0, lt=2**63)]
Id = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Moment = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$"
    ),
    AfterValidator(_moment),
]


class SectionModel(BaseModel):
    """camelCase on the wire, exact types, finite numbers; newer fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, strict=True, extra="ignore", allow_inf_nan=False
    )

    def shown(self) -> dict[str, Any]:
        """The section as the status has it, without fields that are None."""
        return self.model_dump(by_alias=True, exclude_none=True)
