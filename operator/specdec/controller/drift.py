"""Compare a live object with its desired state: a pure comparison without requests.

`apply` calls it to skip writes that would change nothing. The desired state is the intent, as in
server-side apply: a manifest with only the operator's fields. An object has drifted if a field of
the intent has another live value. It has also drifted if the intent has lost a field since the
last apply, which a hash in an annotation shows. Fields of the API server or of other clients do
not count, except in selectors, where a further key changes the selection.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import GROUP
from specdec.api.quantity import amount

APPLIED = f"{GROUP}/applied"
_QUANTITY_FIELDS = frozenset({"averageValue", "capacity", "limits", "requests", "sizeLimit"})
# Maps that must not have further keys.
_EXACT_FIELDS = frozenset({"podSelector", "selector"})


def shared(intent: Mapping[str, Any]) -> bool:
    """Whether several resources apply this object, each with its own owner reference."""
    return names.ENGINE in intent["metadata"].get("labels", {})


def with_hash(intent: Mapping[str, Any]) -> dict[str, Any]:
    """The intent with its own hash as an annotation.

    Shared objects have no hash, because each resource that shares one has another intent. Jobs
    have none, because their spec is immutable.
    """
    if shared(intent) or intent["kind"] == "Job":
        return dict(intent)
    meta = dict(intent["metadata"])
    meta["annotations"] = {**meta.get("annotations", {}), APPLIED: names.digest(intent)[:32]}
    return {**intent, "metadata": meta}


def covers(live: Any, intent: Any, *, quantity: bool = False, exact: bool = False) -> bool:
    """Whether `live` has every field of `intent`, in any spelling that the API server uses.

    Lists of objects may have further items and another order, because several clients may own
    items of them. Other lists must be equal.

    Args:
        live: a value of the live object.
        intent: the desired value.
        quantity: compare texts as quantities, so that 1Gi equals 1024Mi.
        exact: a map must not have further keys.
    """
    if isinstance(intent, Mapping):
        if not isinstance(live, Mapping):
            return not intent and live is None
        if exact and not live.keys() <= intent.keys():
            return False
        return all(
            covers(
                live.get(key),
                value,
                quantity=quantity or key in _QUANTITY_FIELDS,
                exact=exact or key in _EXACT_FIELDS,
            )
            for key, value in intent.items()
        )
    if isinstance(intent, list | tuple):
        return _covers_list(live, intent)
    if quantity and live is not None:
        return amount(live) == amount(intent)
    # The API server omits fields that are false.
    return bool(live == intent) or (intent is False and live is None)


def _covers_list(live: Any, intent: list[Any] | tuple[Any, ...]) -> bool:
    if not intent:
        return not live
    if not isinstance(live, list):
        return False
    if all(isinstance(item, Mapping) for item in intent):
        return all(any(covers(other, item) for other in live) for item in intent)
    return live == list(intent)
