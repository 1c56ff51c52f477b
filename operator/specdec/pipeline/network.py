"""The Services, the address clients use, and what a resource has beside them."""

from collections.abc import Iterable
from dataclasses import replace

from specdec.api import names
from specdec.desired import network as desired
from specdec.desired import optional_objects as desired_optional
from specdec.pipeline import optional_objects
from specdec.pipeline.observed import Ref
from specdec.pipeline.stage import Context, Outcome


def network(context: Context) -> Outcome:
    """Want a Service for each server as soon as there is something to serve."""
    return reachable(context, names.servers(context.model))


def reachable(context: Context, roles: Iterable[str]) -> Outcome:
    """Want the Services of these servers; one whose Deployment is gone goes too.

    The Services come first: the target's remembers which kinds of the others there are.
    """
    model, observed = context.model, context.observed
    wanted, more = tuple(roles), optional_objects.extras(context)
    # In the one object of every resource that is read anyway.
    note = {"target": desired_optional.annotation(optional_objects.kinds(context))}
    old = [
        names.server_name(model, role)
        for role in names.SERVERS
        if role not in wanted and role not in observed.deployments
    ]
    services = tuple(desired.service(model, role, note.get(role)) for role in wanted)
    gone = tuple(Ref("v1", "Service", name) for name in old if name in observed.services)
    return replace(
        more,
        apply=services + more.apply,
        delete=gone + more.delete,
        status={
            "url": desired.url(model),
            "endpoints": [desired.endpoint(model, role) for role in wanted],
        },
    )
