"""Pure: what was read in, what to do out. The chain stops at the first stage that is not done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.api.conditions import Condition
from specdec.observed import Object, Ref


@dataclass(frozen=True)
class Decision:
    """What one reconcile does.

    `apply` in order; `status` is the whole status without conditions' timestamps (those are merged
    by `reconcile`); `requeue_after` in seconds, None when an event will bring us back.
    """

    apply: tuple[Object, ...] = ()
    delete: tuple[Ref, ...] = ()
    conditions: tuple[Condition, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    requeue_after: float | None = None
