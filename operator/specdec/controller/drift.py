"""Whether a live object still is what we want: pure comparison, no requests.

Two things are asked. Does the live object carry the mark of the very intent we have now? Then no
field was dropped from the intent since. Has every field of the intent its value in the live
object? Then nobody changed it behind our back. Fields that the server or others add do not count,
except in a selector: one more key there selects something else.
"""

from collections.abc import Mapping
from typing import Any

from specdec.api import names
from specdec.api.model import GROUP
from specdec.api.quantity import amount

APPLIED = f"{GROUP}/applied"
_QUANTITIES = frozenset({"averageValue", "capacity", "limits", "requests", "sizeLimit"})
# Maps that are what was applied or they are wrong.
_WHOLE = frozenset({"podSelector", "selector"})


def shared(intent: Mapping[str, Any]) -> bool:
    """Whether several resources apply this object, each with its own owner reference."""
    return names.ENGINE in intent["metadata"].get("labels", {})


def marked(intent: Mapping[str, Any]) -> dict[str, Any]:
    """The intent with its own hash as an annotation.

    Shared objects carry none, since their sharers' intents differ; nor do Jobs, which are never
    applied again.
    """
    if shared(intent) or intent["kind"] == "Job":
        return dict(intent)
    meta = dict(intent["metadata"])
    meta["annotations"] = {**meta.get("annotations", {}), APPLIED: names.digest(intent)[:32]}
    return {**intent, "metadata": meta}


def covers(live: Any, intent: Any, *, quantity: bool = False, whole: bool = False) -> bool:
    """Whether `live` has every field of `intent`, with the server's own spelling allowed.

    Items of a list of objects may come in another order and among others (their keys belong to
    several writers); other lists must be equal. `quantity` says that values are quantities,
    `whole` that no other keys are allowed.
    """
    if isinstance(intent, Mapping):
        if not isinstance(live, Mapping):
            return not intent and live is None
        if whole and not live.keys() <= intent.keys():
            return False
        return all(
            covers(
                live.get(key),
                value,
                quantity=quantity or key in _QUANTITIES,
                whole=whole or key in _WHOLE,
            )
            for key, value in intent.items()
        )
    if isinstance(intent, list | tuple):
        return _covers_list(live, intent)
    if quantity and live is not None:
        return amount(live) == amount(intent)
    # The server leaves out what is false.
    return bool(live == intent) or (intent is False and live is None)


def _covers_list(live: Any, intent: list[Any] | tuple[Any, ...]) -> bool:
    if not intent:
        return not live
    if not isinstance(live, list):
        return False
    if all(isinstance(item, Mapping) for item in intent):
        return all(any(covers(one, item) for one in live) for item in intent)
    return live == list(intent)
