"""Plans of measuring Jobs: their programs read the fields that the builders write."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import measurement
from specdec.desired.pod import Volume
from specdec.jobs import verify
from specdec.servers.kind import kind
from support.simulated_cluster import resource

Json = dict[str, Any]


def test_plans_are_those_that_the_operator_writes() -> None:
    """A program would fail in the cluster if the builder did not write a field that it reads."""
    body = resource(verification={"promptsConfigMapRef": {"name": "ours"}})
    model = SpeculativeModel.parse(body)
    job = measurement.verify_job(model, "0" * 16, "0.18.0", 4, "image")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    plan = verify.VerificationPlan.parse(command[-1])
    assert plan == verify.VerificationPlan(
        plan_hash="0" * 16,
        kind=kind("bls"),
        compares=True,
        client_loop=False,
        server="pair.demo.svc:8001",
        draft_server=None,
        metrics="pair.demo.svc:8002",
        draft_tokens=4,
        prompts=Path("/specdec/prompts/prompts.jsonl"),
        prompts_name="ConfigMap ours, key prompts.jsonl",
        max_prompts=16,
        max_tokens=32,
    )


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ({}, ("pair.demo.svc:8000", "http")),
        ({"tls": {"secretName": "pair-tls"}}, ("pair.demo.svc:8001", None)),
        ({"http": "HealthOnly"}, ("pair.demo.svc:8001", None)),
    ],
)
def test_a_benchmark_asks_over_http_where_it_is_served(
    serving: Json, expected: tuple[str, str | None]
) -> None:
    model = SpeculativeModel.parse(resource(serving=serving))
    volume = Volume("volume", "uid", single_node=False)
    job = measurement.benchmark_job(model, "0" * 16, 4, volume, "image")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    plan = json.loads(command[-1])
    assert (plan["server"], plan.get("protocol")) == expected
