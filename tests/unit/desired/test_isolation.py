"""The network access of Jobs if a resource enables network policies."""

from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import isolation
from specdec.desired.measurement import benchmark_job
from specdec.desired.pod import Volume
from specdec.pipeline.decide import decide
from support.simulated_cluster import IMAGES, World, fetched, resource

ENABLED = {"networkPolicy": {"mode": "Enabled"}}
MINE = Volume("pair-models", "uid", single_node=False)


def model(**networking: Any) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(networking=networking))


def selects(policy: dict[str, Any], labels: dict[str, str]) -> bool:
    selector = policy["spec"]["podSelector"]
    (member,) = selector["matchExpressions"]
    return (
        selector["matchLabels"].items() <= labels.items()
        and labels[member["key"]] in member["values"]
    )


def policies(asked: SpeculativeModel, *networks: str) -> dict[str, Any]:
    bodies = isolation.objects(asked, networks)
    return {body["metadata"]["name"].rpartition("-")[2]: body for body in bodies}


def labels_of(job: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = job["spec"]["template"]["metadata"]["labels"]
    return labels


def ready(**networking: Any) -> World:
    """Return a world whose claim is bound and whose Jobs all succeeded."""
    world = World(resource(networking=networking))
    world.bind()
    world.step()
    world.settle(lambda component: fetched() if component == "fetch" else {})
    return world


def test_jobs_are_free_unless_a_policy_is_asked_for() -> None:
    assert isolation.objects(model(), ("10.0.0.0/8",)) == ()


@pytest.mark.parametrize(
    ("component", "policy"),
    [("fetch", "fetch"), ("engine", "build"), ("publish", "build"), ("verify", "measure")],
)
def test_every_job_s_pod_has_one_policy(component: str, policy: str) -> None:
    world = ready(**ENABLED)
    made = policies(world.model())
    for name in world.named(component):
        labels = labels_of(world.jobs[name])
        assert [what for what, body in made.items() if selects(body, labels)] == [policy]
    assert world.named(component)


def test_the_benchmark_is_a_measuring_job() -> None:
    job = benchmark_job(model(**ENABLED), "h" * 16, 4, MINE, "image")
    made = policies(model(**ENABLED))
    assert [what for what, body in made.items() if selects(body, labels_of(job))] == ["measure"]


def test_a_fetch_job_reaches_only_dns_and_public_addresses() -> None:
    spec = policies(model(**ENABLED))["fetch"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    names, outside = spec["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53]
    four, six = (peer["ipBlock"] for peer in outside["to"])
    assert {"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} < set(
        four["except"]
    )
    assert {"fe80::/10", "fc00::/7"} == set(six["except"])


def test_a_network_that_the_operator_allows_is_in_the_policy() -> None:
    _, outside = policies(model(**ENABLED), "10.20.0.0/16")["fetch"]["spec"]["egress"]
    assert outside["to"][-1] == {"ipBlock": {"cidr": "10.20.0.0/16"}}


def test_builds_and_publishing_reach_nothing() -> None:
    spec = policies(model(**ENABLED))["build"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(spec)


def test_measuring_jobs_reach_the_servers_alone() -> None:
    world = ready(**ENABLED)
    names, servers = policies(world.model())["measure"]["spec"]["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53]
    (peer,) = servers["to"]
    pods = world.deployments["pair"]["spec"]["template"]["metadata"]["labels"]
    assert selects({"spec": peer}, pods)


def test_the_policies_are_applied_before_the_first_job() -> None:
    world = World(resource(networking=ENABLED))
    world.bind()
    applied = [
        f"{body['kind']} {body['metadata']['name']}"
        for body in decide(world.model(), world.observed(), IMAGES).apply
    ]
    job = next(i for i, one in enumerate(applied) if one.startswith("Job "))
    for what in ("fetch", "build", "measure"):
        assert applied.index(f"NetworkPolicy pair-{what}") < job


def test_policies_are_deleted_when_the_spec_disables_them() -> None:
    world = ready(**ENABLED)
    kept = {name for kind, name in world.optional_objects if kind == "NetworkPolicy"}
    assert kept == {"pair", "pair-fetch", "pair-build", "pair-measure"}
    world.cr["spec"]["networking"] = {}
    world.step()
    assert {kind for kind, _ in world.optional_objects} == set()
