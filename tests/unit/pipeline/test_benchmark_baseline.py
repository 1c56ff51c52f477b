"""spec.benchmark.baseline: the benchmark compares with another resource when that is Ready."""

import json
from typing import Any

import pytest

from specdec.desired import isolation
from specdec.tools.dry_run.other_resources import baseline
from support.simulated_cluster import World, measured, resource
from unit.pipeline.verifying import finish, serve

Json = dict[str, Any]
BENCHMARK: Json = {"mode": "OnReady", "baseline": {"modelRef": {"name": "plain"}}}


def waiting(**spec: Any) -> World:
    """Return a verified service whose baseline does not exist."""
    world = World(resource("Lookahead", benchmark=BENCHMARK, **spec))
    world.spec["speculation"]["lookahead"] = {}
    world.baseline = None
    serve(world)
    finish(world)
    return world


def plan(world: World) -> Json:
    job = world.jobs[world.job("benchmark")]
    value: Json = json.loads(job["spec"]["template"]["spec"]["containers"][0]["command"][-1])
    return value


def test_benchmark_waits_for_a_baseline_that_does_not_exist() -> None:
    world = waiting()
    assert world.named("benchmark") == []
    condition = world.condition("BenchmarkCompleted")
    assert (condition["status"], condition["reason"]) == ("Unknown", "BaselineMissing")
    assert "SpeculativeModel plain of spec.benchmark.baseline.modelRef" in condition["message"]
    world.baseline = baseline(world.cr)
    world.step()
    assert world.named("benchmark")


@pytest.mark.parametrize(
    ("changed", "reason", "text"),
    [
        ({"status": {}}, "BaselineWaits", "waits until plain is Ready"),
        ({"metadata": {"name": "plain", "generation": 2}}, "BaselineWaits", "plain is Ready"),
        ({"spec": {}}, "BaselineWaits", "plain is Ready"),
        ({"metadata": {"name": "plain", "deletionTimestamp": "now"}}, "BaselineMissing", "plain"),
        ({"spec": {"serving": {"tls": {"secretName": "x"}}}}, "BaselineMissing", "serving.tls"),
    ],
)
def test_benchmark_waits_for_a_baseline_that_cannot_be_measured(
    changed: Json, reason: str, text: str
) -> None:
    world = waiting()
    ready = baseline(world.cr)
    assert ready is not None
    spec = changed.get("spec")
    more = {**ready["spec"], **spec} if spec else spec
    world.baseline = {
        **ready,
        **changed,
        **({} if spec is None else {"spec": more}),
        "metadata": {**ready["metadata"], **changed.get("metadata", {})},
    }
    world.step()
    condition = world.condition("BenchmarkCompleted")
    assert condition["reason"] == reason
    assert text in condition["message"]
    assert world.named("benchmark") == []


def test_plan_has_both_services_over_one_protocol() -> None:
    world = waiting()
    world.baseline = baseline(world.cr)
    world.step()
    measured_plan = plan(world)
    assert (measured_plan["server"], measured_plan["protocol"]) == ("pair.demo.svc:8000", "http")
    assert measured_plan["baseline"] == {
        "name": "plain",
        "server": "plain.demo.svc:8000",
        "kind": "bls",
        "model": "tensorrt_llm_bls",
    }
    world.baseline = {
        **(baseline(world.cr) or {}),
        "spec": {**world.spec, "serving": {"http": "HealthOnly"}},
    }
    world.step()
    world.step()
    assert plan(world)["server"] == "pair.demo.svc:8001"
    assert plan(world)["baseline"]["server"] == "plain.demo.svc:8001"
    assert "protocol" not in plan(world)


def test_result_stays_when_the_baseline_goes() -> None:
    world = waiting()
    world.baseline = baseline(world.cr)
    world.step()
    result = measured(world.jobs[world.job("benchmark")])["benchmark"]
    world.finish(world.job("benchmark"), {"benchmark": result})
    world.step()
    world.baseline = None
    world.step()
    assert world.condition("BenchmarkCompleted")["reason"] == "Completed"


def test_policy_of_measuring_jobs_allows_the_pods_of_the_baseline() -> None:
    world = waiting(networking={"networkPolicy": {"mode": "Enabled"}})
    (policy,) = [
        item
        for item in isolation.objects(world.model())
        if item["metadata"]["name"] == "pair-measure"
    ]
    instances = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/instance"]
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", ())
    ]
    assert instances == ["pair", "plain"]


def test_service_with_an_openai_endpoint_is_measured_there() -> None:
    world = waiting()
    world.baseline = baseline(world.cr)
    runtime = {"backend": "PyTorch", "frontend": "TrtllmServe", "version": "1.2.1"}
    assert world.baseline is not None
    world.baseline["spec"]["runtime"] = runtime
    world.step()
    assert plan(world)["baseline"] == {
        "name": "plain",
        "server": "plain.demo.svc:8000",
        "kind": "trtllm_serve",
        "model": "",
    }
