"""Routes from outside of the cluster, and network policies of the pods."""

import copy
from typing import Any

import pytest

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import network, policy, routes, serving
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from support.golden_cases import resource as case
from support.simulated_cluster import resource

PEER = {"namespaceSelector": {"matchLabels": {"team": "web"}}}


def model(**networking: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(networking=networking))


def spec(bodies: tuple[dict[str, Any], ...]) -> Any:
    (body,) = bodies
    return body["spec"]


def test_there_is_no_route_unless_the_spec_sets_one() -> None:
    assert routes.objects(model()) == ()
    assert policy.objects(model()) == ()
    assert network.service(model())["spec"]["type"] == "ClusterIP"


def test_a_route_of_a_gateway_leads_to_the_http_port() -> None:
    parents = [{"name": "a"}, {"name": "b", "namespace": "edge", "sectionName": "s", "port": 443}]
    route = spec(routes.objects(model(gateway={"parentRefs": parents})))
    assert route["parentRefs"] == parents
    assert "hostnames" not in route
    assert route["rules"] == [{"backendRefs": [{"name": "pair", "port": 8000}]}]


SPLIT = {"parentRefs": [{"name": "a"}], "split": {"modelRef": {"name": "next"}, "percent": 10}}


@pytest.mark.parametrize("share", [1, 10, 100])
def test_a_split_gives_the_other_service_its_share(share: int) -> None:
    (body,) = routes.objects(model(gateway=SPLIT), share)
    own = {"name": "pair", "port": 8000, "weight": 100 - share}
    other = {"name": "next", "port": 8000, "weight": share}
    assert body["spec"]["rules"] == [{"backendRefs": [own, other]}]
    assert routes.sends_to(body, "next")
    assert routes.sends_to(body, "pair") == (share < 100)


def test_a_split_of_zero_percent_is_left_out() -> None:
    (body,) = routes.objects(model(gateway=SPLIT), 0)
    assert body["spec"]["rules"] == [{"backendRefs": [{"name": "pair", "port": 8000}]}]
    assert not routes.sends_to(body, "next")
    assert not routes.sends_to({}, "next")


@pytest.mark.parametrize("tls", [None, "certificate"])
def test_an_ingress_leads_every_host_to_the_http_port(tls: str | None) -> None:
    asked = {"hosts": ["a.example.com", "b.example.com"], "className": "nginx"}
    ingress = spec(routes.objects(model(ingress=asked | ({"tlsSecretName": tls} if tls else {}))))
    assert [rule["host"] for rule in ingress["rules"]] == asked["hosts"]
    for rule in ingress["rules"]:
        (path,) = rule["http"]["paths"]
        assert path["backend"]["service"] == {"name": "pair", "port": {"number": 8000}}
    expected = [{"hosts": asked["hosts"], "secretName": tls}] if tls else None
    assert ingress.get("tls") == expected


def takes(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    (member,) = selector["matchExpressions"]
    return (
        selector["matchLabels"].items() <= labels.items()
        and labels[member["key"]] in member["values"]
    )


def test_a_policy_is_about_all_serving_pods_and_no_job() -> None:
    restricted = model(networkPolicy={"mode": "Enabled", "from": [PEER]})
    body = spec(policy.objects(restricted))
    volume = Volume("models", "uid", single_node=False)
    made = serving.deployment(restricted, Revision("r" * 64, "image"), volume, 1)
    assert takes(body["podSelector"], made["spec"]["template"]["metadata"]["labels"])
    for component in names.SERVERS.values():
        assert takes(body["podSelector"], names.labels(restricted, component))
    assert not takes(body["podSelector"], names.labels(restricted, "fetch"))
    assert body["policyTypes"] == ["Ingress"]
    clients, metrics = body["ingress"]
    assert clients["from"] == [{"podSelector": {}}, PEER]
    assert [port["port"] for port in clients["ports"]] == [8000, 8001]
    assert [port["port"] for port in metrics["ports"]] == [8002]
    assert "from" not in metrics


def test_ranks_of_a_group_reach_each_other_on_any_port() -> None:
    cr = copy.deepcopy(case("tensorrt-405b-two-nodes"))
    cr["spec"]["networking"] = {"networkPolicy": {"mode": "Enabled"}}
    body = spec(policy.objects(SpeculativeModel.parse(cr)))
    assert body["ingress"][2] == {"from": [{"podSelector": body["podSelector"]}]}


def test_with_health_alone_on_http_clients_are_led_to_grpc() -> None:
    asked = {"networkPolicy": {"mode": "Enabled"}}
    closed = SpeculativeModel.parse(resource(serving={"http": "HealthOnly"}, networking=asked))
    assert network.url(closed) == "grpc://pair.demo.svc:8001"
    ports = network.service(closed)["spec"]["ports"]
    assert [port["name"] for port in ports] == ["grpc", "metrics"]
    (body,) = policy.objects(closed)
    assert [[port["port"] for port in rule["ports"]] for rule in body["spec"]["ingress"]] == [
        [8001],
        [8002],
    ]
