"""Change one field of a resource for a person: suspend it, resume it, or measure it again."""

from collections.abc import Callable
from typing import Any

from specdec.api.measurement import Benchmark, Verification
from specdec.client.errors import BadRequestError
from specdec.cluster import Cluster, Conflict
from specdec.tools.inspect.session import resource

Json = dict[str, Any]
Operations = list[Json]

# The manager in `managedFields` of the fields that these commands set.
_MANAGER = "specdec-cli"
# A patch conflicts with each write in between, and the operator writes the status of a busy
# resource several times a second.
_ATTEMPTS = 8
_MODES = {"verification": Verification().mode, "benchmark": Benchmark().mode}
_ENABLED = {"verification": "Report or Gate", "benchmark": "OnReady"}


async def change(
    cluster: Cluster, namespace: str, name: str, operations: Callable[[Json], Operations]
) -> bool:
    """Patch a resource as it is now; False if it needs no change.

    Args:
        operations: the operations of a JSON patch for the resource; empty if it needs no change.

    Raises:
        BadRequestError: there is no such resource, or `operations` refuses it.
        ClusterError: the request failed; a Conflict if the resource changes all the time.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        body = await resource(cluster, namespace, name)
        patch = operations(body)
        if not patch:
            return False
        try:
            await cluster.patch(body, patch, _MANAGER)
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
        else:
            return True
    raise AssertionError


def suspension(value: bool) -> Callable[[Json], Operations]:
    """The patch that sets `spec.suspend`."""

    def operations(body: Json) -> Operations:
        if bool(body["spec"].get("suspend")) == value:
            return []
        return [{"op": "add", "path": "/spec/suspend", "value": value}]

    return operations


def another_run(section: str) -> Callable[[Json], Operations]:
    """The patch that increments `run` in `spec.verification` or `spec.benchmark`.

    It raises BadRequestError if the mode of that section is Disabled.
    """

    def operations(body: Json) -> Operations:
        part = body["spec"].get(section)
        mode = (part or {}).get("mode", _MODES[section])
        if mode == "Disabled":
            raise BadRequestError(
                f"spec.{section}.mode of {body['metadata']['name']} is Disabled; "
                f"set it to {_ENABLED[section]}"
            )
        if part is None:
            return [{"op": "add", "path": f"/spec/{section}", "value": {"run": "1"}}]
        last = str(part.get("run") or "")
        following = str(int(last) + 1) if last.isdecimal() else "1"
        return [{"op": "add", "path": f"/spec/{section}/run", "value": following}]

    return operations
