"""The Services of the servers, the addresses that clients use, and objects such as routes."""

from collections.abc import Iterable
from dataclasses import replace

from specdec.api import names
from specdec.desired import network as desired
from specdec.desired import optional_objects as desired_optional
from specdec.pipeline.observed import Ref
from specdec.pipeline.stage import Context, Outcome
from specdec.pipeline.stages import optional_objects


def network(context: Context) -> Outcome:
    """Apply a Service for each server."""
    return services(context, names.servers(context.model))


def services(context: Context, roles: Iterable[str]) -> Outcome:
    """Apply the Services of these roles and the optional objects; delete superfluous Services.

    A Service is superfluous if its role is not among these and has no Deployment.

    An annotation of the target's Service lists the kinds of the optional objects. Later reconciles
    read these kinds and delete what is no longer desired. So the Services are applied before the
    optional objects.
    """
    model, observed = context.model, context.observed
    roles, optional = tuple(roles), optional_objects.optional_objects(context)
    # Every reconcile reads the target's Service, so the annotation costs no further request.
    annotations = {"target": desired_optional.annotation(optional_objects.kinds(context))}
    superfluous = [
        names.server_name(model, role)
        for role in names.SERVERS
        if role not in roles and role not in observed.deployments
    ]
    applied = tuple(desired.service(model, role, annotations.get(role)) for role in roles)
    deleted = tuple(
        Ref("v1", "Service", name) for name in superfluous if name in observed.services
    )
    return replace(
        optional,
        apply=applied + optional.apply,
        delete=deleted + optional.delete,
        status={
            "url": desired.url(model),
            "endpoints": [desired.endpoint(model, role) for role in roles],
        },
    )
