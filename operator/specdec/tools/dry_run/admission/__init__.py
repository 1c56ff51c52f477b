"""The API server's checks of a SpeculativeModel, without a server.

`admit` decodes a resource and checks it as the API server does for `kubectl apply`: unknown
fields, defaults, the CRD's schema and its rules. What only a cluster knows is not checked: whether
the namespace exists, quotas, and policies and webhooks of its own.
"""

from dataclasses import dataclass
from typing import Any

from specdec.tools.dry_run.admission import decoding, list_types, metadata, rules, structure
from specdec.tools.dry_run.admission.definition import definition
from specdec.tools.dry_run.admission.problem import Problem

__all__ = ["Admission", "Problem", "admit"]

Body = dict[str, Any]


@dataclass(frozen=True)
class Admission:
    """The verdict on a resource.

    Attributes:
        body: the resource as the API server would store it, without a status.
        problems: why the API server refuses it; empty if it accepts it.
    """

    body: Body
    problems: tuple[Problem, ...]


def admit(body: Body, old: Body | None = None) -> Admission:
    """Decode and check a resource; `body` is not changed.

    Args:
        body: the resource, with its metadata.
        old: the admitted resource before a change; None for a new resource.
    """
    known, meta = definition(), body["metadata"]
    unknown = [*metadata.unknown_fields(meta), *decoding.unknown_fields(body, known.schema)]
    unreadable = [*unknown, *metadata.wrong_types(meta)]
    decoded: Body = decoding.decoded(body, known.schema)
    decoded.pop("status", None)
    if unreadable:
        return Admission(decoded, tuple(unreadable))
    problems = [
        *metadata.problems(meta),
        *structure.problems(decoded, known.schema, ""),
        *structure.scale_problems(decoded, known.replicas),
        *list_types.problems(decoded, known.schema, ""),
    ]
    if not any(problem.kind.blocking for problem in problems):
        problems += rules.problems(decoded, old, known.schema, "")
    # The API server reports a problem once, even if several schemas find it.
    unique = {(problem.field, problem.message): problem for problem in problems}
    return Admission(decoded, tuple(unique.values()))
