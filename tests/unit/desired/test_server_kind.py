"""Another kind of server is one value, which changes all ports, probes, arguments and routes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from specdec import servers
from specdec.api.model import SpeculativeModel
from specdec.desired import measurement, network, policy, routes, serving
from specdec.desired.pod import Volume
from specdec.desired.serving import Revision
from specdec.servers.bls.serving import SERVING
from specdec.triton.probes import Programs
from support.simulated_cluster import resource

OTHER = replace(
    SERVING,
    ports={"http": 9000, "grpc": 9001, "metrics": 9002},
    probes=lambda _: Programs(["started"], ["ready"], ["alive"]),
    command=lambda _: ["other-server"],
    pre_stop=lambda stopping: ["wait", str(stopping.linger_seconds)],
)


@pytest.fixture
def other() -> Iterator[None]:
    """Serve resources with another kind of server."""
    with patch.dict(vars(servers.kind("bls")), {"serving": OTHER}):
        yield


def model(**networking: Any) -> SpeculativeModel:
    cr = resource()
    cr["spec"]["networking"] = networking
    return SpeculativeModel.parse(cr)


def container(resource_: SpeculativeModel) -> dict[str, Any]:
    volume = Volume("models", "abc", single_node=False)
    made = serving.deployment(resource_, Revision("a" * 64, "image"), volume, 1)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    return dict(server)


def test_backends_name_their_kinds_and_each_package_is_one() -> None:
    assert servers.of(model()) == servers.kind("bls")
    assert [kind.name for kind in servers.kinds()] == [
        *("bls", "llm_api", "trtllm_serve", "vllm", "vllm_serve")
    ]


@pytest.mark.usefixtures("other")
def test_another_kind_gives_the_container_its_ports_arguments_and_probes() -> None:
    server = container(model())
    assert [port["containerPort"] for port in server["ports"]] == [9000, 9001, 9002]
    assert server["command"][-1] == "other-server"
    assert server["startupProbe"]["exec"]["command"] == ["started"]
    assert server["readinessProbe"]["exec"]["command"] == ["ready"]
    assert server["livenessProbe"]["exec"]["command"] == ["alive"]
    assert server["lifecycle"]["preStop"]["exec"]["command"] == ["wait", "5"]


@pytest.mark.usefixtures("other")
def test_another_kind_gives_services_policies_routes_and_jobs_its_ports() -> None:
    ingress = {"hosts": ["models.example.com"]}
    resource_ = model(ingress=ingress, networkPolicy={"mode": "Enabled"})
    service = network.service(resource_)
    (rules,) = policy.objects(resource_)
    (route,) = routes.objects(resource_)
    job = measurement.verify_job(resource_, "a" * 16, "0.19.0", 4, "image")
    url = network.url(resource_)
    assert [port["port"] for port in service["spec"]["ports"]] == [9000, 9001, 9002]
    allowed = [port["port"] for rule in rules["spec"]["ingress"] for port in rule["ports"]]
    assert allowed == [9000, 9001, 9002]
    (path,) = route["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"]["port"] == {"number": 9000}
    assert ".svc:9001" in job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert url.endswith(".svc:9000")
