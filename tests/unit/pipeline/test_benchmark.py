"""What spec.benchmark makes of a resource: a Job after the verification, a summary, staleness."""

import json
from typing import Any

from golden.world import World, measured, resource
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
    told = measured(world.jobs[world.job("benchmark")])["benchmark"]
    world.finish(world.job("benchmark"), {"benchmark": {**told, **changed}})
    world.step()


def test_it_waits_for_the_verification_and_writes_to_the_volume() -> None:
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
        "concurrency": [1, 4],
        "requests": 20,
        "outputTokens": 64,
        "maxErrorPercent": 1,
        "report": f"reports/pair-demo/{plan(world)['planHash']}.json",
    }


def test_its_summary_is_kept_and_nothing_is_done_twice() -> None:
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


def test_too_many_errors_are_a_failure_with_what_was_measured() -> None:
    world = serving()
    finish(world)
    name = world.job("benchmark")
    told = measured(world.jobs[name])["benchmark"]
    error = {"reason": "ErrorRateHigh", "message": "9 of 100 requests failed"}
    message = {"benchmark": {**told, "message": "9 of 100 requests failed"}, "error": error}
    world.fail(name, json.dumps(message))
    world.step()
    condition = world.condition("BenchmarkCompleted")
    assert (condition["status"], condition["reason"]) == ("False", "ErrorRateHigh")
    assert "9 of 100 requests failed" in condition["message"]
    assert world.cr["status"]["benchmark"]["state"] == "Failed"
    assert world.cr["status"]["benchmark"]["levels"]
    assert world.condition("Ready")["status"] == "True"


def test_a_change_makes_it_stale_and_is_measured_again() -> None:
    world = serving()
    finish(world)
    done(world)
    first = world.job("benchmark")
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    assert world.condition("BenchmarkCompleted")["reason"] == "Stale"
    assert world.cr["status"]["benchmark"]["stale"] is True
    serve(world)
    assert world.named("benchmark") == [], "not before the verification of what serves now"
    finish(world)
    assert world.job("benchmark") != first
    done(world)
    assert world.cr["status"]["benchmark"]["stale"] is False


def test_it_runs_beside_a_verification_that_failed_or_is_switched_off() -> None:
    world = serving()
    world.fail(world.job("verify"), "gone wrong")
    world.step()
    assert world.named("benchmark")
    off = World(resource(benchmark={"mode": "OnReady"}, verification={"mode": "Disabled"}))
    serve(off)
    assert off.named("benchmark")


def test_a_failed_job_is_said_with_the_way_to_go_on() -> None:
    world = serving(timeoutSeconds=60)
    finish(world)
    world.fail(world.job("benchmark"), "", reason="DeadlineExceeded")
    world.step()
    condition = world.condition("BenchmarkCompleted")
    assert (condition["status"], condition["reason"]) == ("Unknown", "DeadlineExceeded")
    assert "raise spec.benchmark.timeoutSeconds" in condition["message"]


def test_suspended_and_switched_off_resources_have_no_job() -> None:
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
