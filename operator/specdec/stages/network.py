"""The Services and the address clients use; they have no condition of their own."""

from collections.abc import Iterable

from specdec.api import names
from specdec.desired import network as desired
from specdec.observed import Ref
from specdec.stages.stage import Context, Outcome


def network(context: Context) -> Outcome:
    """Want a Service for each server as soon as there is something to serve."""
    return reachable(context, names.servers(context.model))


def reachable(context: Context, roles: Iterable[str]) -> Outcome:
    """Want the Services of these servers; one whose Deployment is gone goes too."""
    model, observed = context.model, context.observed
    wanted = tuple(roles)
    old = [
        names.server_name(model, role)
        for role in names.SERVERS
        if role not in wanted and role not in observed.deployments
    ]
    return Outcome(
        (),
        context.facts,
        proceed=True,
        apply=tuple(desired.service(model, role) for role in wanted),
        delete=tuple(Ref("v1", "Service", name) for name in old if name in observed.services),
        status={"url": desired.url(model)},
    )
