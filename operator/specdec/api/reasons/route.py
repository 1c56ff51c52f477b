"""Reasons of `RouteReady`: Gateway, Ingress and split. They never block `Ready`."""

from specdec.api.condition_types import Type
from specdec.api.reasons.definition import Reason, Section

_SECTION = Section(Type.ROUTE_READY)


class RouteReason(Reason):
    """Reasons of `RouteReady`."""

    ROUTE_ACCEPTED = _SECTION.progress(
        "RouteAccepted", "every Gateway accepted the HTTPRoute, or the Ingress has an address"
    )
    ROUTE_PENDING = _SECTION.progress(
        "RoutePending",
        "at least one Gateway has not reported on the route yet, or the Ingress has no address "
        "yet",
        "wait; check that the Gateway or the ingress class exists and that its controller runs",
    )
    ROUTE_NOT_ACCEPTED = _SECTION.blocked(
        "RouteNotAccepted",
        "a Gateway rejected the route",
        "read the Gateway's error in the message: `allowedRoutes`, a listener or a host name",
    )
    SPLIT_WAITS = _SECTION.progress(
        "SplitWaits",
        "the resource in `gateway.split` is not Ready or does not serve HTTP, so it gets no "
        "requests",
        "wait, or check the conditions of that resource",
    )
    SPLIT_TARGET_MISSING = _SECTION.blocked(
        "SplitTargetMissing",
        "the resource in `gateway.split.modelRef` does not exist",
        "correct the name, create that resource in this namespace, or remove `split`",
    )
    GATEWAY_API_MISSING = _SECTION.blocked(
        "GatewayApiMissing",
        "`spec.networking.gateway` is set, and the cluster does not have the kind HTTPRoute",
        "install the Gateway API, or use `ingress`",
    )
