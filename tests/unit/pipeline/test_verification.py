"""spec.verification: one Job for each served revision, its result, and stale results."""

import json

import pytest

from specdec.api.conditions import PROBLEMS, PROGRESS
from support.simulated_cluster import World, resource
from unit.pipeline.verifying import Json, finish, plan, reasons, result_of, serve, serving


def test_ready_does_not_wait_and_conditions_have_the_result() -> None:
    world = serving()
    assert world.condition("Ready")["status"] == "True"
    assert reasons(world)["SpeculationActive"] == ("Unknown", "Queued")
    assert "speculation" not in world.cr["status"]
    finish(world, matched=16, speedupPercent=180, acceptancePercent=71)
    assert reasons(world) == {
        "SpeculationActive": ("True", "DraftTokensObserved"),
        "OutputEquivalent": ("True", "Equivalent"),
        "SpeculationEffective": ("True", "Effective"),
    }
    status = world.cr["status"]["speculation"]
    assert (status["acceptancePercent"], status["speedupPercent"]) == (71, 180)
    assert (status["active"], status["stale"]) == (True, False)
    assert status["planHash"] == plan(world)["planHash"]
    assert world.last is not None
    assert world.last.requeue_after is None


def test_revision_is_verified_once() -> None:
    world = serving()
    finish(world)
    status = json.dumps(world.cr["status"])
    decision = world.last
    assert world.step() == decision
    assert json.dumps(world.cr["status"]) == status
    world.jobs.clear()
    world.pods.clear()
    world.step()
    assert world.jobs == {}, "a result outlives its Job"
    assert json.dumps(world.cr["status"]["speculation"]) in status


def test_the_job_is_a_client_without_volume_or_token() -> None:
    world = serving()
    job = world.jobs[world.job("verify")]
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {v["name"] for v in pod["volumes"]} == {"tmp"}
    assert "affinity" not in pod
    (container,) = pod["containers"]
    assert container["image"].endswith("/operator:1")
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    assert job["spec"]["activeDeadlineSeconds"] == 600
    assert job["spec"]["backoffLimit"] > 0
    assert plan(world) == {
        "planHash": plan(world)["planHash"],
        "server": "pair.demo.svc:8001",
        "kind": "bls",
        "compares": True,
        "draftTokens": 4,
        "maxPrompts": 16,
        "maxTokens": 32,
    }


def test_prompts_of_a_config_map_are_one_file() -> None:
    ref = {"name": "ours", "key": "code.jsonl"}
    world = serving(verification={"promptsConfigMapRef": ref})
    pod = world.jobs[world.job("verify")]["spec"]["template"]["spec"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "prompts")
    assert volume["configMap"] == {
        "name": "ours",
        "items": [{"key": "code.jsonl", "path": "prompts.jsonl"}],
        "optional": True,
    }
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "prompts")
    assert plan(world)["prompts"] == f"{mount['mountPath']}/prompts.jsonl"
    assert "ours" in plan(world)["promptsName"]


@pytest.mark.parametrize(
    ("changed", "kind", "reason", "text"),
    [
        ({"active": False, "draftedTokens": 0}, "SpeculationActive", "NoDraftTokensObserved", ""),
        ({"matched": 13, "divergence": "prompt 3 differs"}, "OutputEquivalent", "Diverged",
         "13 of 16 greedy outputs equal the target's own: prompt 3 differs"),
        ({"speedupPercent": 85}, "SpeculationEffective", "SlowerThanBaseline", "85 %"),
        ({"acceptancePercent": 12}, "SpeculationEffective", "LowAcceptance", "12 %"),
    ],
)  # fmt: skip
def test_bad_results_are_reported_and_do_not_hold_ready_back(
    changed: Json, kind: str, reason: str, text: str
) -> None:
    world = serving(verification={"minAcceptancePercent": 20})
    finish(world, **changed)
    assert reasons(world)[kind] == ("False", reason)
    assert text in world.condition(kind)["message"]
    assert [v for k, v in reasons(world).items() if k != kind and v[0] != "True"] == []
    assert world.condition("Ready")["status"] == "True"
    assert world.cr["status"]["phase"] == "Serving"
    assert reason in PROBLEMS


def test_draft_tokens_forced_to_zero_are_named_as_the_cause() -> None:
    world = serving()
    finish(world)
    world.spec["speculation"]["draftTokens"] = 0
    serve(world)
    finish(world, active=False, draftedTokens=0, acceptedTokens=0)
    assert reasons(world)["SpeculationActive"] == ("False", "NoDraftTokensObserved")
    assert "draftTokens is 0: raise it" in world.condition("SpeculationActive")["message"]


def test_prompts_without_an_answer_are_counted() -> None:
    world = serving()
    finish(world, prompts=14, matched=14, failed=2, failure="it is too long")
    message = world.condition("OutputEquivalent")["message"]
    assert reasons(world)["OutputEquivalent"] == ("True", "Equivalent")
    assert message == (
        "all 14 greedy outputs equal the target's own; requests for 2 prompts failed: it is too "
        "long"
    )


def test_a_change_makes_the_result_stale_until_it_is_measured_again() -> None:
    world = serving()
    finish(world, speedupPercent=180)
    first = world.job("verify")
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    assert set(reasons(world).values()) == {("Unknown", "Stale")}
    status = world.cr["status"]["speculation"]
    assert status["stale"] is True
    assert status["previous"]["speedupPercent"] == 180
    assert not {"acceptancePercent", "speedupPercent", "active", "tokensPerRound"} & set(status)

    serve(world)
    assert world.job("verify") != first, "another Job replaces the old one"
    assert reasons(world)["OutputEquivalent"] == ("Unknown", "Queued")
    assert world.cr["status"]["speculation"]["stale"] is True
    finish(world, speedupPercent=120)
    assert world.cr["status"]["speculation"]["speedupPercent"] == 120
    assert "previous" not in world.cr["status"]["speculation"]


def test_revision_that_returns_is_not_measured_again() -> None:
    world = serving()
    finish(world, speedupPercent=180)
    before = world.cr["status"]["speculation"]
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    world.spec["speculation"]["draftTokens"] = 4
    serve(world)
    assert world.cr["status"]["speculation"] == before


def test_result_of_another_plan_is_ignored() -> None:
    world = serving()
    finish(world, planHash="0" * 16)
    assert reasons(world)["OutputEquivalent"] == ("Unknown", "VerificationFailed")
    assert "speculation" not in world.cr["status"]
    assert world.last is not None
    assert world.last.requeue_after is None


def test_other_run_and_other_prompts_measure_again() -> None:
    world = serving()
    finish(world)
    for change in ({"run": "2"}, {"maxPrompts": 3}, {"promptsConfigMapRef": {"name": "mine"}}):
        last = world.job("verify")
        world.spec["verification"] = change
        world.step()
        world.step()
        assert world.job("verify") != last, change
        finish(world)
    last = world.job("verify")
    world.spec["verification"] = {**change, "minSpeedupPercent": 900}
    world.step()
    assert world.job("verify") == last, "another threshold needs no other measurement"
    assert reasons(world)["SpeculationEffective"] == ("False", "SlowerThanBaseline")


def test_unready_pods_do_not_make_the_result_stale() -> None:
    world = serving()
    finish(world)
    before = reasons(world)
    assert world.deployment is not None
    world.deployment["status"]["readyReplicas"] = 0
    world.step()
    assert world.condition("Ready")["status"] == "False"
    assert reasons(world) == before


@pytest.mark.parametrize("mode", ["Report", "Disabled"])
def test_the_target_alone_has_nothing_to_verify(mode: str) -> None:
    world = serving("None", verification={"mode": mode})
    assert world.named("verify") == []
    expected = ("False", "MethodNone") if mode == "Report" else ("Unknown", "NotRun")
    assert reasons(world)["SpeculationActive"] == expected
    assert world.condition("Ready")["status"] == "True"


def test_disabled_verification_deletes_its_job_and_result() -> None:
    world = serving()
    world.spec["verification"] = {"mode": "Disabled"}
    world.step()
    world.step()
    assert world.named("verify") == []
    assert set(reasons(world).values()) == {("Unknown", "NotRun")}


def test_methods_inside_the_engine_are_measured_by_their_steps() -> None:
    world = serving("Lookahead")
    assert plan(world)["compares"] is False
    finish(world, tokensPerRound="2.40")
    assert reasons(world) == {
        "SpeculationActive": ("True", "DraftTokensObserved"),
        "OutputEquivalent": ("Unknown", "NotComparable"),
        "SpeculationEffective": ("Unknown", "NotComparable"),
    }
    message = world.condition("SpeculationActive")["message"]
    assert message == "2.40 tokens per engine step for 16 prompts"


def test_steps_without_counts_are_not_comparable() -> None:
    world = serving("Lookahead")
    name, result = world.job("verify"), result_of(world, active=False)
    del result["verification"]["rounds"]
    world.finish(name, result)
    world.step()
    assert reasons(world)["SpeculationActive"] == ("Unknown", "NotComparable")
    assert "spec.serving.streaming" in world.condition("SpeculationActive")["message"]


def test_server_counters_are_read_where_answers_lack_counts_and_one_pod_serves() -> None:
    older: Json = {"runtime": {"backend": "Reference", "version": "0.18.0"}}
    assert plan(serving(**older))["metrics"] == "pair.demo.svc:8002"
    assert "metrics" not in plan(serving(**older, serving={"replicas": 2}))
    world = serving(**older, serving={"replicas": 2})
    name, result = world.job("verify"), result_of(world, active=False)
    for untold in ("rounds", "draftedTokens", "acceptedTokens"):
        del result["verification"][untold]
    world.finish(name, result)
    world.step()
    assert reasons(world)["SpeculationActive"] == ("Unknown", "NotComparable")
    assert "0.19.0 or later" in world.condition("SpeculationActive")["message"]


def test_sources_of_drafts_are_counted_where_lookups_are_on_and_one_pod_serves() -> None:
    for replicas, metrics in ((1, "pair.demo.svc:8002"), (2, None)):
        world = World(resource("DraftTarget", serving={"replicas": replicas}))
        world.spec["speculation"]["draftTarget"]["lookup"] = {"minMatch": 2}
        serve(world)
        assert plan(world).get("metrics") == metrics
    assert "metrics" not in plan(serving())


def test_message_and_status_have_the_sources_of_drafts() -> None:
    world = serving()
    sources = [
        {"name": "model", "draftedTokens": 20, "acceptedTokens": 12, "acceptancePercent": 60},
        {"name": "lookup", "draftedTokens": 10, "acceptedTokens": 9, "acceptancePercent": 90},
    ]
    finish(world, draftedTokens=30, acceptedTokens=21, acceptancePercent=70, sources=sources)
    assert world.cr["status"]["speculation"]["sources"] == sources
    assert world.condition("SpeculationActive")["message"] == (
        "21 of 30 draft tokens accepted (70 %) for 16 prompts, 2.00 tokens per round: 12 of 20 "
        "from the draft model, 9 of 10 from lookups"
    )


def test_every_reason_is_documented() -> None:
    world = serving()
    reported = {reason for _, reason in reasons(world).values()}
    finish(world)
    reported |= {reason for _, reason in reasons(world).values()}
    assert reported <= PROBLEMS | PROGRESS
