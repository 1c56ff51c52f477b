"""The results that Jobs leave in their termination messages, parsed into typed values.

Some Jobs run in users' images, so no message is trusted. A section that is not valid is reported
with its field, and no section reaches a decision without validation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    model_validator,
)

from specdec.api.checkpoint_facts import Fetched
from specdec.api.result_values import Count, Hex, Moment, SectionModel, Short, Size, Text
from specdec.api.text import cut, line
from specdec.pipeline.observed import Object, termination_message

# More than the kubelet keeps: 4096 bytes of a container's message, and 12288 of a pod's.
MOST_CHARACTERS = 16384
_PROBLEM_CHARACTERS = 200
_MOST_LEVELS = 64
_MOST_SOURCES = 8


class Models(RootModel[dict[str, Fetched]]):
    """Sources by role."""

    model_config = ConfigDict(strict=True, frozen=True)


class Keys(RootModel[list[Hex]]):
    """The first hex digits of the keys of engines on the volume."""

    model_config = ConfigDict(strict=True, frozen=True)


class Roles(RootModel[list[Short]]):
    """The roles of the engines that the publish Job reports as missing or damaged."""

    model_config = ConfigDict(strict=True, frozen=True)


class RequestFields(SectionModel):
    """The names of request fields in an image."""

    min_tokens: Literal["min_length", "min_tokens"]
    seed: Literal["random_seed", "seed"]


class ImageContract(SectionModel):
    """What a build read in its image and compared with the release in `runtime.version`.

    Attributes:
        version: TensorRT-LLM in the image.
        templates: number of templates of Triton models that were compared.
        flags: number of flags of build programs that were compared.
        request_fields: names of request fields that differ between releases; the repository
            declares them.
        warning: what differs, where the spec does not enforce the comparison.
    """

    version: Short
    templates: Count
    flags: Count
    request_fields: RequestFields
    warning: Text | None = None


class Built(SectionModel):
    """A built engine; `seconds` is the duration of the build."""

    seconds: Annotated[float, Field(ge=0, lt=2**31)] | None = None
    image: ImageContract | None = None


class DraftSource(SectionModel):
    """Draft tokens of one source, such as `model` or `lookup`."""

    name: Short
    drafted_tokens: Size
    accepted_tokens: Size
    acceptance_percent: Count | None = None


class Measured(SectionModel):
    """The result of a verification, in the fields of `status.speculation`."""

    draft_tokens: Count | None = None
    acceptance_percent: Count | None = None
    speedup_percent: Count | None = None
    prompts: Count
    matched: Count | None = None
    failed: Count | None = None
    drafted_tokens: Size | None = None
    accepted_tokens: Size | None = None
    rounds: Size | None = None
    tokens_per_round: Short | None = None
    sources: Annotated[list[DraftSource], Field(max_length=_MOST_SOURCES)] | None = None
    failure: Text | None = None
    divergence: Text | None = None
    measured_at: Moment | None = None
    plan_hash: Hex
    active: bool = False

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if (self.drafted_tokens is None) != (self.accepted_tokens is None):
            raise ValueError("one of draftedTokens and acceptedTokens is missing")
        if self.active and self.drafted_tokens is None and self.rounds is None:
            raise ValueError("active is true, but draftedTokens and rounds are missing")
        return self


class Arm(SectionModel):
    """Requests and times of one side of the comparison: with speculation, or without."""

    requests: Count | None = None
    errors: Count | None = None
    latency_p50_ms: Short | None = Field(default=None, alias="latencyP50Ms")
    first_token_p50_ms: Short | None = Field(default=None, alias="firstTokenP50Ms")
    tokens_per_second: Short | None = None


class Level(SectionModel):
    """The measurement at one number of concurrent clients."""

    concurrency: Count
    speedup_percent: Count | None = None
    speedup_interval: Short | None = None
    acceptance_percent: Count | None = None
    tokens_per_round: Short | None = None
    baseline: Arm | None = None
    speculative: Arm | None = None


class Benchmarked(SectionModel):
    """The summary of a benchmark, in the fields of `status.benchmark`."""

    plan_hash: Hex
    message: Text | None = None
    draft_tokens: Count | None = None
    levels: Annotated[list[Level], Field(max_length=_MOST_LEVELS)] | None = None
    measured_at: Moment | None = None


class Pruned(SectionModel):
    """How many directories a prune Job deleted, and their size."""

    deleted: Count
    bytes: Size


class Failure(SectionModel):
    """Why a Job failed: a CamelCase reason and a sentence."""

    reason: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]{1,62}$")]
    message: Annotated[str, Field(max_length=MOST_CHARACTERS), AfterValidator(line)] = ""


Section = Literal["models", "engines", "engine", "verification", "benchmark", "prune"]
P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True)
class Result:
    """The sections of one message; a section is None where it is missing or invalid.

    `problems` has the first invalid field of each invalid section, without its value.
    """

    models: Models | None = None
    engines: Keys | None = None
    engine: Built | None = None
    verification: Measured | None = None
    benchmark: Benchmarked | None = None
    prune: Pruned | None = None
    error: Failure | None = None
    lost: Roles | None = None
    problems: Mapping[str, str] = field(default_factory=dict)

    def problem(self, *sections: Section) -> str | None:
        """The first problem of the sections; None if all are valid."""
        return next((self.problems[name] for name in sections if name in self.problems), None)


def result(pods: Sequence[Object]) -> Result:
    """The result of the newest pod with a JSON object in its termination message; never raises."""
    for pod in pods:
        text = termination_message(pod)
        try:
            value = json.loads(text) if len(text) <= MOST_CHARACTERS else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return _parsed(value)
    return Result()


def parsed(kind: type[P], value: Any) -> P | None:
    """A section that an earlier reconcile wrote to the status; None where it is invalid."""
    return _section(kind, "", value, {})


def _parsed(value: Mapping[str, Any]) -> Result:
    problems: dict[str, str] = {}
    sections = {
        name: _section(kind, name, value[name], problems)
        for name, kind in _SECTIONS.items()
        if value.get(name) is not None
    }
    return Result(**sections, problems=problems)  # type: ignore[arg-type]


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "models": Models,
    "engines": Keys,
    "engine": Built,
    "verification": Measured,
    "benchmark": Benchmarked,
    "prune": Pruned,
    "error": Failure,
    "lost": Roles,
}


def _section(kind: type[P], name: str, value: Any, problems: dict[str, str]) -> P | None:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join((name, *map(str, first["loc"])))
        problems[name] = cut(line(f"{where}: {first['msg']}"), _PROBLEM_CHARACTERS)
        return None
