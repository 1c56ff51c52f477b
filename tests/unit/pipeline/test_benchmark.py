"""spec.benchmark: a Job after the verification, its summary, and stale results."""

import json
from typing import Any

from support.simulated_cluster import World, measured, resource
from unit.pipeline.verifying import finish, serve

Json = dict[str, Any]


def serving(**benchmark: Any) -> World:
    world = World(resource(benchmark={"mode": "OnReady", **benchmark}))
    serve(world)
    return world


def plan(world: World) -> Json:
    job = world.jobs[world.job("benchmark")]
    value: Json = json.loads(job["spec"]["template"]["spec"]["containers"][0]["command"][-1])
    return value


def done(world: World, **changed: Any) -> None:
    result = measured(world.jobs[world.job("benchmark")])["benchmark"]
    world.finish(world.job("benchmark"), {"benchmark": {**result, **changed}})
    world.step()


def test_benchmark_waits_for_the_verification_and_writes_to_the_volume() -> None:
    world = serving(concurrency=[1, 4], requests=20)
    assert world.named("benchmark") == []
    assert "waits for the verification" in world.condition("BenchmarkCompleted")["message"]
    finish(world)
    pod = world.jobs[world.job("benchmark")]["spec"]["template"]["spec"]
    assert {v["name"] for v in pod["volumes"]} == {"models", "tmp"}
    assert plan(world) == {
        "planHash": plan(world)["planHash"],
        "server": "pair.demo.svc:8000",
        "protocol": "http",
        "draftTokens": 4,
        "kind": "bls",
        "model": "tensorrt_llm_bls",
        "concurrency": [1, 4],
        "requests": 20,
        "outputTokens": 64,
        "maxErrorPercent": 1,
        "report": f"reports/pair-demo/{plan(world)['planHash']}.json",
    }


def test_summary_is_kept_and_the_benchmark_runs_once() -> None:
    world = serving()
    finish(world)
    assert world.condition("BenchmarkCompleted")["reason"] == "Queued"
    done(world)
    condition = world.condition("BenchmarkCompleted")
    assert (condition["status"], condition["reason"]) == ("True", "Completed")
    entry = world.cr["status"]["benchmark"]
    assert entry["state"] == "Completed"
    assert entry["report"].startswith("reports/pair-demo/")
    assert [level["concurrency"] for level in entry["levels"]] == [1, 8]
    world.jobs.clear()
    world.pods.clear()
    status = json.dumps(world.cr["status"])
    world.step()
    assert world.jobs == {}
    assert json.dumps(world.cr["status"]) == status


def test_failure_for_errors_keeps_the_measurements() -> None:
    world = serving()
    finish(world)
    name = world.job("benchmark")
    result = measured(world.jobs[name])["benchmark"]
    error = {"reason": "ErrorRateHigh", "message": "9 of 100 requests failed"}
    message = {"benchmark": {**result, "message": "9 of 100 requests failed"}, "error": error}
    world.fail(name, json.dumps(message))
    world.step()
    condition = world.condition("BenchmarkCompleted")
    assert (condition["status"], condition["reason"]) == ("False", "ErrorRateHigh")
    assert "9 of 100 requests failed" in condition["message"]
    assert world.cr["status"]["benchmark"]["state"] == "Failed"
    assert world.cr["status"]["benchmark"]["levels"]
    assert world.condition("Ready")["status"] == "True"


def test_change_makes_the_benchmark_stale() -> None:
    world = serving()
    finish(world)
    done(world)
    first = world.job("benchmark")
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    assert world.condition("BenchmarkCompleted")["reason"] == "Stale"
    assert world.cr["status"]["benchmark"]["stale"] is True
    serve(world)
    assert world.named("benchmark") == [], "the served revision has to be verified first"
    finish(world)
    assert world.job("benchmark") != first
    done(world)
    assert world.cr["status"]["benchmark"]["stale"] is False


def test_benchmark_runs_after_a_failed_or_disabled_verification() -> None:
    world = serving()
    world.fail(world.job("verify"), "it failed")
    world.step()
    assert world.named("benchmark")
    off = World(resource(benchmark={"mode": "OnReady"}, verification={"mode": "Disabled"}))
    serve(off)
    assert off.named("benchmark")


def test_failed_benchmark_reports_cause_and_remedy() -> None:
    world = serving(timeoutSeconds=60)
    finish(world)
    world.fail(world.job("benchmark"), "", reason="DeadlineExceeded")
    world.step()
    condition = world.condition("BenchmarkCompleted")
    assert (condition["status"], condition["reason"]) == ("Unknown", "DeadlineExceeded")
    assert "raise spec.benchmark.timeoutSeconds" in condition["message"]


def test_suspended_or_disabled_benchmark_has_no_job() -> None:
    world = serving()
    finish(world)
    world.spec["suspend"] = True
    world.step()
    world.step()
    assert world.named("benchmark") == []
    assert world.condition("BenchmarkCompleted")["reason"] == "Suspended"
    world.spec["benchmark"] = {"mode": "Disabled"}
    world.spec["suspend"] = False
    serve(world)
    assert world.named("benchmark") == []
    assert world.condition("BenchmarkCompleted")["reason"] == "NotRun"
