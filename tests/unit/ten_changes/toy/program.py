"""Serve, verify and benchmark a resource of the toy backend; run with the changed package."""

import asyncio
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from specdec import servers
from specdec.api.model import SpeculativeModel
from specdec.desired import measurement
from specdec.desired.pod import Volume
from specdec.jobs import benchmark, verify
from specdec.pipeline import validation
from specdec.pipeline.pods import server_log
from specdec.tools.dry_run.admission import admit
from support.programs import local
from support.simulated_cluster import IMAGES, World, limits, resource, source
from unit.ten_changes.toy.simulated_server import Server, running

Json = dict[str, Any]


def plan_of(job: Json, **changes: Any) -> Json:
    """Return the plan of a Job, with the addresses of simulated servers."""
    plan: Json = json.loads(job["spec"]["template"]["spec"]["containers"][0]["command"][-1])
    return {**plan, **changes}


def served() -> World:
    """Return the cluster with a resource that serves."""
    cr = resource("NGram", runtime={"backend": "Toy"}, verification={"maxPrompts": 3})
    world = World(cr)
    world.settle()
    assert world.condition("Available")["status"] == "True", world.cr["status"]
    assert world.named("engine") == []
    assert world.cr["status"]["plan"]["image"] == "example.com/toy:0.19.0"
    return world


def probe(world: World, server: Server, name: str) -> None:
    """Run a probe of the server's container."""
    (body,) = [obj for (kind, _), obj in world.ever_applied.items() if kind == "Deployment"]
    (container,) = body["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [9100, 9102]
    assert "toy-server" in container["command"]
    *command, plan = container[f"{name}Probe"]["exec"]["command"]
    fields = {**json.loads(plan), "port": server.server_address[1]}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            local([*command, json.dumps(fields)]),
            env={"SPECDEC_HEALTH": f"{folder}/health"},
            check=True,
        )


def crashed() -> None:
    """Read the cause in the log of a server that ended."""
    log = "started\nbroken: no file\nbye"
    lines = servers.kind("toy").serving.log
    assert server_log.summary(log, lines) == "no file; end of its log: bye"


def verified(world: World, server: Server) -> None:
    """Run the verification Job."""
    plan = plan_of(world.jobs[world.job("verify")], server=server.address, metrics=server.address)
    assert plan["kind"] == "toy", plan
    result = asyncio.run(verify.measured(verify.VerificationPlan.parse(json.dumps(plan))))
    assert (result["prompts"], result["failed"], result["active"]) == (3, 0, True), result
    assert result["acceptancePercent"] == 50, result


def benchmarked(world: World, server: Server, baseline: Server) -> None:
    """Run the benchmark Job with a service without speculation as baseline."""
    model = SpeculativeModel.parse(world.cr)
    plain = resource("None", runtime={"backend": "Toy"})
    plain["metadata"]["name"] = "plain"
    other = SpeculativeModel.parse(plain)
    volume = Volume("models", "abc", single_node=False)
    job = measurement.benchmark_job(model, "a" * 16, 0, volume, "image", other)
    plan = plan_of(job, server=server.address, concurrency=[2], requests=4, outputTokens=4)
    plan["baseline"] |= {"server": baseline.address}
    with tempfile.TemporaryDirectory() as folder:
        result = benchmark.benchmark(plan, Path(folder))["benchmark"]
        (level,) = result["levels"]
        assert (level["speculative"]["errors"], level["baseline"]["errors"]) == (0, 0), result


def print_refusals() -> None:
    """Print why resources are refused, by the API server and by the operator alike."""
    target = {"source": source("target"), "limits": limits()}
    for body in (
        resource("None", runtime={"backend": "Toy", "chunkedContext": True, "instances": 2}),
        resource(
            runtime={"backend": "Toy"},
            target={**target, "parallelism": {"tensor": 2}},
            speculation={"method": "Lookahead", "lookahead": {}},
        ),
    ):
        refused = [problem.detail for problem in admit(body).problems]
        cause = validation.first_problem(SpeculativeModel.parse(body), IMAGES)
        assert cause is not None
        assert cause.message.partition(": ")[2] == refused[0], (cause.message, refused)
        for message in refused:
            print(message)


def main() -> None:
    """Run all steps."""
    print_refusals()
    world = served()
    with running() as server, running() as baseline:
        for name in ("startup", "readiness", "liveness"):
            probe(world, server, name)
        crashed()
        verified(world, server)
        benchmarked(world, server, baseline)
    print("served, verified and measured")


if __name__ == "__main__":
    main()
