"""What a verification makes of a resource: one Job for what serves, its result, and staleness."""

import json

import pytest

from specdec.api.conditions import PROBLEMS, PROGRESS
from unit.pipeline.verifying import Json, finish, found, plan, serve, serving, told


def test_ready_does_not_wait_and_a_good_result_is_said() -> None:
    world = serving()
    assert world.condition("Ready")["status"] == "True"
    assert told(world)["SpeculationActive"] == ("Unknown", "Queued")
    assert "speculation" not in world.cr["status"]
    finish(world, matched=16, speedupPercent=180, acceptancePercent=71)
    assert told(world) == {
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


def test_nothing_is_done_twice() -> None:
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
        "way": "Bls",
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
    ("changed", "kind", "reason", "words"),
    [
        ({"active": False, "draftedTokens": 0}, "SpeculationActive", "NoDraftTokensObserved", ""),
        ({"matched": 13, "divergence": "prompt 3 differs"}, "OutputEquivalent", "Diverged",
         "13 of 16 greedy answers are the target's own: prompt 3 differs"),
        ({"speedupPercent": 85}, "SpeculationEffective", "SlowerThanBaseline", "85 %"),
        ({"acceptancePercent": 12}, "SpeculationEffective", "LowAcceptance", "12 %"),
    ],
)  # fmt: skip
def test_what_is_bad_is_said_and_holds_nothing_back(
    changed: Json, kind: str, reason: str, words: str
) -> None:
    world = serving(verification={"minAcceptancePercent": 20})
    finish(world, **changed)
    assert told(world)[kind] == ("False", reason)
    assert words in world.condition(kind)["message"]
    assert [v for k, v in told(world).items() if k != kind and v[0] != "True"] == []
    assert world.condition("Ready")["status"] == "True"
    assert world.cr["status"]["phase"] == "Serving"
    assert reason in PROBLEMS


def test_draft_tokens_forced_to_zero_are_named_as_the_cause() -> None:
    world = serving()
    finish(world)
    world.spec["speculation"]["draftTokens"] = 0
    serve(world)
    finish(world, active=False, draftedTokens=0, acceptedTokens=0)
    assert told(world)["SpeculationActive"] == ("False", "NoDraftTokensObserved")
    assert "draftTokens is 0: raise it" in world.condition("SpeculationActive")["message"]


def test_prompts_without_an_answer_are_counted_and_said() -> None:
    world = serving()
    finish(world, prompts=14, matched=14, failed=2, failure="it is too long")
    message = world.condition("OutputEquivalent")["message"]
    assert told(world)["OutputEquivalent"] == ("True", "Equivalent")
    assert "2 prompts have no answer: it is too long" in message


def test_a_change_makes_the_result_stale_until_it_is_measured_again() -> None:
    world = serving()
    finish(world, speedupPercent=180)
    first = world.job("verify")
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    assert set(told(world).values()) == {("Unknown", "Stale")}
    status = world.cr["status"]["speculation"]
    assert status["stale"] is True
    assert status["previous"]["speedupPercent"] == 180
    assert not {"acceptancePercent", "speedupPercent", "active", "tokensPerRound"} & set(status)

    serve(world)
    assert world.job("verify") != first, "the old Job goes, another is made"
    assert told(world)["OutputEquivalent"] == ("Unknown", "Queued")
    assert world.cr["status"]["speculation"]["stale"] is True
    finish(world, speedupPercent=120)
    assert world.cr["status"]["speculation"]["speedupPercent"] == 120
    assert "previous" not in world.cr["status"]["speculation"]


def test_what_comes_back_to_what_was_measured_is_not_measured_again() -> None:
    world = serving()
    finish(world, speedupPercent=180)
    before = world.cr["status"]["speculation"]
    world.spec["speculation"]["draftTokens"] = 2
    world.step()
    world.spec["speculation"]["draftTokens"] = 4
    serve(world)
    assert world.cr["status"]["speculation"] == before


def test_a_result_of_another_plan_is_none() -> None:
    world = serving()
    finish(world, planHash="0" * 16)
    assert told(world)["OutputEquivalent"] == ("Unknown", "VerificationFailed")
    assert "speculation" not in world.cr["status"]
    assert world.last is not None
    assert world.last.requeue_after is None


def test_what_a_request_for_another_run_and_other_prompts_do() -> None:
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
    assert world.job("verify") == last, "a threshold judges what was measured"
    assert told(world)["SpeculationEffective"] == ("False", "SlowerThanBaseline")


def test_pods_that_are_away_for_a_while_make_nothing_stale() -> None:
    world = serving()
    finish(world)
    before = told(world)
    assert world.deployment is not None
    world.deployment["status"]["readyReplicas"] = 0
    world.step()
    assert world.condition("Ready")["status"] == "False"
    assert told(world) == before


@pytest.mark.parametrize("mode", ["Report", "Disabled"])
def test_the_target_alone_has_nothing_to_verify(mode: str) -> None:
    world = serving("None", verification={"mode": mode})
    assert world.named("verify") == []
    wanted = ("False", "MethodNone") if mode == "Report" else ("Unknown", "NotRun")
    assert told(world)["SpeculationActive"] == wanted
    assert world.condition("Ready")["status"] == "True"


def test_switched_off_it_forgets_and_ends_its_job() -> None:
    world = serving()
    world.spec["verification"] = {"mode": "Disabled"}
    world.step()
    world.step()
    assert world.named("verify") == []
    assert set(told(world).values()) == {("Unknown", "NotRun")}


def test_methods_inside_the_engine_are_seen_by_their_steps_alone() -> None:
    world = serving("Lookahead")
    assert plan(world)["way"] == "Engine"
    finish(world, tokensPerRound="2.40")
    assert told(world) == {
        "SpeculationActive": ("True", "DraftTokensObserved"),
        "OutputEquivalent": ("Unknown", "NotComparable"),
        "SpeculationEffective": ("Unknown", "NotComparable"),
    }
    assert "2.40 tokens a step" in world.condition("SpeculationActive")["message"]


def test_steps_that_cannot_be_seen_are_not_judged() -> None:
    world = serving("Lookahead")
    name, result = world.job("verify"), found(world, active=False)
    del result["verification"]["rounds"]
    world.finish(name, result)
    world.step()
    assert told(world)["SpeculationActive"] == ("Unknown", "NotComparable")
    assert "spec.serving.streaming" in world.condition("SpeculationActive")["message"]


def test_counters_are_read_where_answers_tell_no_drafts_and_one_pod_serves() -> None:
    older: Json = {"runtime": {"backend": "Reference", "version": "0.18.0"}}
    assert plan(serving(**older))["metrics"] == "pair.demo.svc:8002"
    assert "metrics" not in plan(serving(**older, serving={"replicas": 2}))
    world = serving(**older, serving={"replicas": 2})
    name, result = world.job("verify"), found(world, active=False)
    for untold in ("rounds", "draftedTokens", "acceptedTokens"):
        del result["verification"][untold]
    world.finish(name, result)
    world.step()
    assert told(world)["SpeculationActive"] == ("Unknown", "NotComparable")
    assert "0.19.0 or later" in world.condition("SpeculationActive")["message"]


def test_every_reason_is_known() -> None:
    world = serving()
    seen = {reason for _, reason in told(world).values()}
    finish(world)
    seen |= {reason for _, reason in told(world).values()}
    assert seen <= PROBLEMS | PROGRESS
