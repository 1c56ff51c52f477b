"""The matrix: the ways to serve that are tried on a cluster, and reasons against the others.

`matrix` is pure: the same request and GPUs give the same entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import AcceptedReason
from specdec.backends.facts import Images
from specdec.client.errors import BadRequestError
from specdec.tools.certify import resources
from specdec.tools.certify.facts import Gpus
from specdec.tools.certify.request import HEADS, CertifyRequest

Json = dict[str, Any]
BASELINE = "baseline"
HEADS_BASELINE = "heads-baseline"


@dataclass(frozen=True)
class Entry:
    """One way to serve a model.

    Attributes:
        name: the name for --only, and part of the resource's name.
        title: a title for people.
        method: the method of spec.speculation.
        spec: the spec of the resource; empty if the entry is not tried.
        not_tried: why the entry is not tried, in one sentence; empty if it is tried.
        baseline: the entry that its speed is compared with; empty for a baseline.
    """

    name: str
    title: str
    method: str
    spec: Json
    not_tried: str = ""
    baseline: str = BASELINE


@dataclass(frozen=True)
class _Row:
    """What an entry needs, and how its spec is built.

    Attributes:
        gpus: GPUs that the entry needs, on one node unless its pods can be on several nodes.
        heads: whether the entry serves --heads-target; --heads names the checkpoints of its heads.
        rounds: whether it needs rounds outside of the model server.
    """

    name: str
    title: str
    method: str
    build: Callable[[CertifyRequest, Json], Json]
    gpus: int = 1
    heads: bool = False
    rounds: bool = False


def _with_draft(**block: Any) -> Callable[[CertifyRequest, Json], Json]:
    return lambda request, spec: resources.draft_target(request, spec, **block)


def _with_heads(method: str) -> Callable[[CertifyRequest, Json], Json]:
    return lambda request, spec: resources.with_heads(request, spec, method)


_DEDICATED = {"placement": "Dedicated"}
_ROWS = (
    _Row(BASELINE, "Target alone", "None", lambda _, spec: spec),
    _Row("draft-target-shared", "Draft on the target's GPU", "DraftTarget", _with_draft()),
    _Row(
        "draft-target-dedicated",
        "Draft on its own GPU",
        "DraftTarget",
        _with_draft(**_DEDICATED),
        gpus=2,
        rounds=True,
    ),
    _Row(
        "two-servers",
        "Two servers, rounds in the client",
        "DraftTarget",
        _with_draft(topology="TwoServers", **_DEDICATED),
        gpus=2,
        rounds=True,
    ),
    _Row(
        "logits",
        "Acceptance by logits",
        "DraftTarget",
        _with_draft(acceptance="Logits"),
        rounds=True,
    ),
    _Row(
        "fast-logits",
        "Logits from GPU to GPU",
        "DraftTarget",
        _with_draft(acceptance="Logits", fastLogits=True, **_DEDICATED),
        gpus=2,
        rounds=True,
    ),
    _Row("lookahead", "Lookahead", "Lookahead", resources.lookahead),
    _Row("ngram", "Drafts from the text itself", "NGram", resources.n_gram),
    _Row(
        "suffix-automaton",
        "Drafts from the text by a suffix automaton",
        "SuffixAutomaton",
        resources.suffix_automaton,
    ),
    _Row(HEADS_BASELINE, "Target of the heads alone", "None", lambda _, spec: spec, heads=True),
    *(_Row(m.lower(), m.value, m.value, _with_heads(m.value), heads=True) for m in HEADS),
)
NAMES = tuple(row.name for row in _ROWS)


def matrix(
    request: CertifyRequest, gpus: Gpus | None, only: Sequence[str] | None = None
) -> tuple[Entry, ...]:
    """Every entry, in the order in which they run.

    Args:
        request: the options of the run.
        gpus: the GPUs to run on; None for a backend without GPUs.
        only: names of the entries to try; None for all.
    """
    return tuple(_entry(row, request, gpus, only) for row in _ROWS)


def selected(text: str | None) -> tuple[str, ...] | None:
    """Parse the value of --only, names with commas; None selects all.

    Raises:
        BadRequestError: there is no such entry.
    """
    if text is None:
        return None
    chosen = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in chosen if name not in NAMES]
    if unknown or not chosen:
        raise BadRequestError(
            f"--only is {text!r}; write names of the matrix with commas: {', '.join(NAMES)}"
        )
    return chosen


def require_any(entries: Sequence[Entry]) -> None:
    """Raise BadRequestError if no entry is tried."""
    if all(entry.not_tried for entry in entries):
        reasons = [
            f"{entry.name}: {entry.not_tried}"
            for entry in entries
            if entry.not_tried != _NOT_SELECTED
        ]
        raise BadRequestError(f"nothing is tried: {'; '.join(reasons)}")


_NOT_SELECTED = "--only leaves it out"


def _entry(
    row: _Row, request: CertifyRequest, gpus: Gpus | None, only: Sequence[str] | None
) -> Entry:
    baseline = HEADS_BASELINE if row.heads else BASELINE
    head = (row.name, row.title, row.method)
    left_out = only is not None and row.name not in only
    reason = _NOT_SELECTED if left_out else _reason(row, request, gpus)
    compared = "" if row.name == baseline else baseline
    if reason:
        return Entry(*head, {}, reason, compared)
    option = "--heads-target" if row.heads else "--target"
    spec = row.build(request, resources.base_spec(request, gpus, option))
    if reason := _image(row.name, spec):
        return Entry(*head, {}, reason, compared)
    return Entry(*head, spec, "", compared)


def _image(name: str, spec: Json) -> str:
    """Why no default image serves the method; empty if one does, or the spec names one."""
    body = resources.resource(name, "", spec, "")
    model = SpeculativeModel.parse({**body, "metadata": {**body["metadata"], "uid": ""}})
    causes = (rule(model, Images("", "")) for rule in backends.method(model).rules)
    missing = AcceptedReason.IMAGE_MISSING
    return next((f"{c.message} (--image)" for c in causes if c and c.reason is missing), "")


def _reason(row: _Row, request: CertifyRequest, gpus: Gpus | None) -> str:
    """Why a row does not apply to the request and the GPUs; empty if it does."""
    backend = request.backend
    if not request.support.serves(row.method, request.served_version):
        return f"backend {backend} {request.served_version} does not serve method {row.method}"
    if row.name == HEADS_BASELINE and not request.heads:
        return "it is the baseline of heads, and --heads names none"
    if row.name == HEADS_BASELINE and not request.support.on_gpus:
        return f"backend {backend} serves no heads"
    if row.heads and row.name != HEADS_BASELINE and row.method not in request.heads:
        return f"it needs a checkpoint: add --heads {row.method}=SOURCE"
    if row.rounds and not request.drafts_by_request:
        return f"backend {backend} drafts inside the model server, on the GPUs of the target"
    if gpus is None:
        alone = f"it separates the two models, and backend {backend} runs both in one process"
        return alone if row.gpus > 1 else ""
    if row.gpus > _available(row, request, gpus):
        where = "" if _spreads(row, request) else " on one node"
        return f"it needs {row.gpus} GPUs{where}, and no node has more than {gpus.per_node}"
    return ""


def _spreads(row: _Row, request: CertifyRequest) -> bool:
    """Whether the pods of an entry can be on several nodes."""
    return row.name == "two-servers" and request.access_mode == "ReadWriteMany"


def _available(row: _Row, request: CertifyRequest, gpus: Gpus) -> int:
    return gpus.total if _spreads(row, request) else gpus.per_node
