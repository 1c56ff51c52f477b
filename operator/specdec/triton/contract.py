"""What each release of the TensorRT-LLM repository layout declares, read from `contract.yaml`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from specdec.api.tables import table
from specdec.api.versions import at_least

_LOGITS = "LOGITS"
_FLAGS = ("optional", "scalar", "ragged", "added")


@dataclass(frozen=True)
class Tensor:
    """One input or output of a Triton model; `dims` leaves the batch dimension out.

    Attributes:
        data_type: Triton's name with its prefix, for example `TYPE_INT32`.
        dims: -1 is any length.
        optional: a request may come without it.
        scalar: one value per batch row; the model gets it with an empty shape.
        ragged: rows of one batch may differ in length.
        added: by specdec; no published model has this tensor.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]
    optional: bool = False
    scalar: bool = False
    ragged: bool = False
    added: bool = False


# The input of the BLS that stops the requests with the id of this one, as that of an engine does.
STOP = Tensor("stop", "TYPE_BOOL", (1,), optional=True, added=True)
# The input of the BLS that names the texts which lookups search.
LOOKUP_SCOPE = Tensor("lookup_scope", "TYPE_STRING", (1,), optional=True, added=True)


@dataclass(frozen=True)
class Step:
    """One step of the ensemble; each pair is (the step's tensor, the ensemble's tensor)."""

    model: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RequestFields:
    """The names of the request fields that images spell in one of two ways."""

    min_tokens: str
    seed: str

    def named(self, name: str) -> str:
        """The tensor's name for a name in the table; MIN_TOKENS and SEED are placeholders."""
        return {"MIN_TOKENS": self.min_tokens, "SEED": self.seed}.get(name, name)


@cache
def _tables() -> Mapping[str, Any]:
    tables: Mapping[str, Any] = table("specdec.triton", "contract.yaml")
    return tables


def versions() -> tuple[str, ...]:
    """Releases with a complete table, oldest first."""
    return tuple(_tables()["versions"])


def spellings() -> tuple[RequestFields, RequestFields]:
    """The older and the newer names of request fields."""
    names = _tables()["renamed"]["names"]
    older, newer = (
        RequestFields(minimum, seed)
        for minimum, seed in zip(names["MIN_TOKENS"], names["SEED"], strict=True)
    )
    return older, newer


def request_fields(version: str) -> RequestFields:
    """The names in a release, for an image that does not report its own names."""
    older, newer = spellings()
    return newer if at_least(version, _tables()["renamed"]["since"]) else older


def inputs(
    model: str,
    version: str,
    logits_type: str = "TYPE_FP32",
    fields: RequestFields | None = None,
) -> tuple[Tensor, ...]:
    """Inputs that `model` declares in a release; `fields` None selects the release's names."""
    named = fields or request_fields(version)
    return tuple(_tensors(_tables()["models"][model]["inputs"], version, logits_type, named))


def outputs(model: str, version: str, logits_type: str = "TYPE_FP32") -> tuple[Tensor, ...]:
    """Outputs that `model` declares in release `version`."""
    named = request_fields(version)
    return tuple(_tensors(_tables()["models"][model]["outputs"], version, logits_type, named))


def steps(version: str, fields: RequestFields | None = None) -> tuple[Step, ...]:
    """The ensemble's steps, without the mappings of tensors that the release does not have."""
    all_steps = []
    named = fields or request_fields(version)
    for step in _tables()["ensemble"]:
        model = step["model"]
        takes = {tensor.name for tensor in inputs(model, version, fields=named)}
        gives = {tensor.name for tensor in outputs(model, version)}
        all_steps.append(
            Step(
                model,
                tuple(pair for pair in _pairs(step, "inputs", named) if pair[0] in takes),
                tuple(pair for pair in _pairs(step, "outputs", named) if pair[0] in gives),
            )
        )
    return tuple(all_steps)


def _pairs(step: Mapping[str, Any], side: str, fields: RequestFields) -> list[tuple[str, str]]:
    same = [fields.named(name) for name in step.get(f"same_{side}", ())]
    return [*step[side].items(), *zip(same, same, strict=True)]


def _tensors(
    groups: list[str], version: str, logits_type: str, fields: RequestFields
) -> Iterator[Tensor]:
    for group in groups:
        for row in _tables()["rows"][group]:
            if not _holds(row, version):
                continue
            kind = logits_type if row["type"] == _LOGITS else f"TYPE_{row['type']}"
            flags = {flag: bool(row.get(flag)) for flag in _FLAGS}
            for name in row["names"]:
                yield Tensor(fields.named(name), kind, tuple(row["dims"]), **flags)


def _holds(row: Mapping[str, Any], version: str) -> bool:
    if not at_least(version, row.get("since", "0")):
        return False
    return "until" not in row or not at_least(version, row["until"])
