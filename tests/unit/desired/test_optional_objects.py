"""The kinds of a resource's optional objects follow from its spec, without a build of objects."""

import itertools
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import isolation, optional_objects
from support.simulated_cluster import resource

METRIC = {"type": "Pods", "name": "queue", "target": "2"}
SCALING: dict[str, Any] = {"maxReplicas": 4, "metrics": [METRIC]}
KEDA: dict[str, Any] = {
    "driver": "KEDA",
    "maxReplicas": 4,
    "metrics": [{"type": "Prometheus", "query": "sum(queue)", "target": "2"}],
    "prometheusAddress": "http://prometheus:9090",
}
ROUTES: list[dict[str, Any]] = [
    {},
    {"gateway": {"parentRefs": [{"name": "a"}]}},
    {"ingress": {"hosts": ["llm.example.com"]}},
]


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize("policy", ["Disabled", "Enabled"])
def test_kinds_are_those_of_the_objects(suspend: bool, policy: str) -> None:
    for scaling, route, replicas in itertools.product([None, SCALING, KEDA], ROUTES, [1, 2]):
        serving = {"replicas": replicas, **({"scaling": scaling} if scaling else {})}
        networking = {**route, "networkPolicy": {"mode": policy}}
        cr = resource(serving=serving, networking=networking, suspend=suspend)
        model = SpeculativeModel.parse(cr)
        kinds = {body["kind"] for body in optional_objects.objects(model)}
        assert optional_objects.kinds(model) == kinds
        names = [body["metadata"]["name"] for body in isolation.objects(model)]
        assert list(isolation.policy_names(model)) == names
