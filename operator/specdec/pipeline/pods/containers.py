"""The containers of a pod: their statuses, and why one was killed for its memory.

A container is secondary if it runs beside the server or beside the engine build.

All init containers of our pods are sidecars (`restartPolicy: Always`). The resource defines some
of them. A service mesh may add others, and ordinary containers.
"""

import re
from collections.abc import Iterator

from specdec.api import names
from specdec.desired import engine, openai, serving
from specdec.pipeline.observed import Object

_MAIN = (serving.CONTAINER, engine.CONTAINER)
_QUANTITY = re.compile(r"(\d+)([KMGTP]i?|k)?")
# The spec field that sets a container's resources. The key is the component of its pod, or the
# container's own name.
_RESOURCES = {"engine": "spec.build.resources", "server": "spec.serving.resources"}
_RESOURCES[openai.CONTAINER] = "spec.serving.openAI.resources"


def statuses(pod: Object) -> Iterator[Object]:
    """The status of every container, sidecars first: the server waits for them."""
    yield from init_statuses(pod)
    yield from pod.get("status", {}).get("containerStatuses", [])


def init_statuses(pod: Object) -> list[Object]:
    """The statuses of the init containers, which run beside the server."""
    items: list[Object] = pod.get("status", {}).get("initContainerStatuses", [])
    return items


def secondary(status: Object) -> str:
    """The name of a container beside the server or the engine build; empty for those two."""
    name = str(status.get("name", ""))
    return "" if name in _MAIN else name


def out_of_memory(pod: Object, status: Object) -> str:
    """Why a container was killed for its memory, and what to raise."""
    own, spec = status.get("name"), pod.get("spec", {})
    main = spec.get("containers") or [{}]
    same = (i for i in (*main, *spec.get("initContainers", ())) if i.get("name") == own)
    resources = next(same, main[0]).get("resources", {})
    component = pod["metadata"].get("labels", {}).get(names.COMPONENT)
    field = _RESOURCES.get(secondary(status) or str(component))
    limit = resources.get("limits", {}).get("memory")
    if limit:
        return f"the container was killed at its memory limit of {limit}: raise " + (
            f"{field}.limits.memory to {_doubled(limit)}" if field else "that limit"
        )
    request = resources.get("requests", {}).get("memory")
    more = f" of {_doubled(request)} (now {request})" if request and field else ""
    return "the container was killed because its node ran out of memory: request more memory" + (
        f"{more} in {field}.requests.memory" if field else ""
    )


def _doubled(quantity: str) -> str:
    """Twice an amount of memory, so that the next run does not fail for the same reason."""
    match = _QUANTITY.fullmatch(quantity)
    return f"{2 * int(match[1])}{match[2] or ''}" if match else f"twice {quantity}"
