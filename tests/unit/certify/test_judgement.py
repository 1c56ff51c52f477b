"""When an entry is done, when it passed, and with which message it failed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from specdec.tools.certify.judgement import Verdict, judge, speeds
from specdec.tools.certify.progress import EntryLimits, State, history, state
from specdec.tools.certify.timing import stages, total
from unit.certify.bodies import DIGESTS, alone, condition, load, served

Json = dict[str, Any]
LIMITS = EntryLimits(total=3600, blocked=600)


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-02T{clock}Z")


START = at("03:00:00")


def state_of(body: Json, clock: str = "03:20:00", past: list[Json] | None = None) -> State:
    return state(body, history(past or [], body, f"2026-01-02T{clock}Z"), START, at(clock), LIMITS)


def blocked(kind: str, reason: str, message: str = "") -> Json:
    """Return a resource that waits in the stage of this condition."""
    first = condition(kind, "False", reason, message)
    return served(**{kind: first, "Ready": condition("Ready", "False", reason, message)})


def test_served_and_measured_resource_is_done() -> None:
    assert state_of(served()) == State(True)
    assert state_of(alone()) == State(True)


def test_stage_in_progress_is_waited_for() -> None:
    waiting = state_of(blocked("EnginesReady", "Building", "Job engine-1 builds: build 10 %"))
    assert waiting == State(False, "EnginesReady is Building: Job engine-1 builds: build 10 %")


@pytest.mark.parametrize("reason", ["Verifying", "Queued", "Waiting", "Stale"])
def test_measurement_in_progress_is_waited_for(reason: str) -> None:
    body = served(SpeculationActive=condition("SpeculationActive", "Unknown", reason, "wait"))
    assert state_of(body) == State(False, f"SpeculationActive is {reason}: wait")
    body = served(BenchmarkCompleted=condition("BenchmarkCompleted", "Unknown", reason, "wait"))
    assert state_of(body) == State(False, f"BenchmarkCompleted is {reason}: wait")
    assert not state_of(served(OutputEquivalent=None)).done


def test_reason_that_needs_a_change_is_a_failure_at_once() -> None:
    result = state_of(blocked("Accepted", "InvalidSpec", "spec.x is 1: set it to 2"))
    assert result == State(
        True,
        problem="Accepted is InvalidSpec: spec.x is 1: set it to 2",
        condition=("Accepted", "InvalidSpec"),
    )
    body = served(
        SpeculationActive=condition("SpeculationActive", "Unknown", "VerificationFailed", "end")
    )
    assert state_of(body).problem == "SpeculationActive is VerificationFailed: end"


def test_blocking_reason_is_a_failure_after_its_limit() -> None:
    body = blocked("Available", "CrashLoop", "pod x restarted 2 times")
    past = history([], body, "2026-01-02T03:10:00Z")
    assert not state(body, past, START, at("03:20:00"), LIMITS).done
    result = state(body, past, START, at("03:20:01"), LIMITS)
    sentence = "Available is CrashLoop: pod x restarted 2 times (for more than 10 minutes)"
    assert (result.problem, result.condition) == (sentence, ("Available", "CrashLoop"))
    # Another reason in between restarts the time limit.
    other = blocked("Available", "Starting", "pods are loading")
    again = history(history(past, other, "2026-01-02T03:15:00Z"), body, "2026-01-02T03:16:00Z")
    assert not state(body, again, START, at("03:20:01"), LIMITS).done


def test_entry_has_a_limit_of_time() -> None:
    body = blocked("EnginesReady", "Building", "Job engine-1 builds")
    assert not state_of(body, "04:00:00").done
    result = state_of(body, "04:00:01")
    sentence = "not finished within 60 minutes; EnginesReady is Building: Job engine-1 builds"
    assert (result.done, result.problem) == (True, sentence)


def test_operator_that_does_not_reconcile_is_reported() -> None:
    body = served()
    body["status"] = {}
    assert state_of(body, "03:03:00") == State(False, "waits for the operator")
    assert state_of(body, "03:03:01").problem == (
        "the operator has not reconciled the resource within 180 s: check that it runs, and that "
        "it watches this namespace"
    )
    outdated = served()
    outdated["metadata"]["generation"] = 2
    assert state_of(outdated, "03:03:00") == State(False, "waits for the operator")


def test_history_has_each_change_of_a_reason_once() -> None:
    first = history([], served(), "2026-01-02T03:20:00Z")
    assert len(first) == 13
    assert history(first, served(), "2026-01-02T03:21:00Z") == first
    later = history(first, blocked("Available", "CrashLoop"), "2026-01-02T03:22:00Z")
    assert [(item["at"][11:16], item["type"]) for item in later[13:]] == [
        ("03:22", "Available"),
        ("03:22", "Ready"),
    ]


UNKNOWN = condition("OutputEquivalent", "Unknown", "NotComparable", "no switch")
OTHER = ["0000000000", *DIGESTS[1:]]


@pytest.mark.parametrize(
    ("body", "throughput", "sentence"),
    [
        (
            served(OutputEquivalent=condition("OutputEquivalent", "False", "Diverged", "at 3")),
            load(),
            "OutputEquivalent is Diverged: at 3",
        ),
        (
            served(
                SpeculationActive=condition(
                    "SpeculationActive", "False", "NoDraftTokensObserved", "none"
                )
            ),
            load(),
            "SpeculationActive is NoDraftTokensObserved: none",
        ),
        (
            served(
                BenchmarkCompleted=condition("BenchmarkCompleted", "False", "ErrorRateHigh", "x")
            ),
            load(),
            "BenchmarkCompleted is ErrorRateHigh: x",
        ),
        (served(OutputEquivalent=None), load(), "OutputEquivalent is missing: it is missing"),
        (served(), None, "the load has no result"),
        (
            served(),
            load(
                levels=[
                    {
                        "concurrency": 8,
                        "failed": 3,
                        "failure": "queue is full",
                        "tokensPerSecond": 1,
                    }
                ]
            ),
            "3 requests of the load failed: queue is full",
        ),
        (
            served(OutputEquivalent=UNKNOWN),
            load(answers=OTHER),
            "1 of 4 greedy answers differ from those of the baseline: on a GPU two tokens with "
            "nearly equal logits can swap, so check the difference first",
        ),
    ],
)
def test_failed_entry_has_the_first_sentence(
    body: Json, throughput: Json | None, sentence: str
) -> None:
    verdict = judge(body, throughput, load())
    assert (verdict.outcome, verdict.sentence) == ("failed", sentence)


def test_speed_does_not_decide() -> None:
    slow = condition("SpeculationEffective", "False", "SlowerThanBaseline", "slow")
    assert judge(served(SpeculationEffective=slow), load(10, 20), load()).outcome == "passed"


def test_answers_that_the_operator_compared_are_not_judged_again() -> None:
    # The baseline has another engine; the operator compared with the target in the same engine.
    verdict = judge(served(), load(answers=OTHER), load())
    assert verdict.outcome == "passed"


def test_passed_entry_has_its_figures_in_one_sentence() -> None:
    verdict = judge(served(), load(150, 500), load())
    assert verdict == Verdict(
        "passed",
        "4 of 4 answers are the target's own, 75 % of the draft tokens are accepted, up to 500 "
        "tokens/s, 150 % of the baseline's speed with 1 client, 125 % of the baseline's speed "
        "with 8 clients",
    )
    assert judge(alone(), load(), None).sentence == "up to 400 tokens/s"
    unknown = served(OutputEquivalent=UNKNOWN)
    unknown["status"]["speculation"] = {"active": True, "tokensPerRound": "1.80", "prompts": 4}
    sentence = judge(unknown, load(), load()).sentence
    assert sentence.startswith(
        "1.80 tokens per step, 4 of 4 answers equal those of the baseline, up to 400 tokens/s, "
    )


def test_state_of_a_failed_resource_is_the_verdict() -> None:
    problem = State(True, problem="Accepted is InvalidSpec: x", condition=("Accepted", "y"))
    assert judge(served(), None, None, problem) == Verdict(
        "failed", "Accepted is InvalidSpec: x", ("Accepted", "y")
    )
    assert judge(served(), None, None, "the load failed: x").sentence == "the load failed: x"


def test_speed_is_compared_with_the_baseline_by_clients() -> None:
    assert speeds(load(150, 200), load()) == {1: 150, 8: 50}
    assert speeds(load(), None) == {}
    assert speeds(load(), load(0, 100)) == {8: 400}


def test_stages_take_the_time_since_the_one_before() -> None:
    timed = {item["stage"]: item["seconds"] for item in stages(served(), "2026-01-02T03:30:00Z")}
    assert timed == {
        "Accepted": 1,
        "StorageReady": 4,
        "ModelsFetched": 115,
        "Compatible": 0,
        "MemoryFits": 0,
        "EnginesReady": 600,
        "RepositoryReady": 10,
        "Available": 60,
        "Verification": 50,
        "Benchmark": 60,
    }
    assert total(stages(served(), "2026-01-02T03:30:00Z")) == 900


def test_stage_that_failed_is_the_last_and_ends_with_the_entry() -> None:
    timed = stages(blocked("EnginesReady", "BuildFailed"), "2026-01-02T03:30:00Z")
    assert timed[-1] == {
        "stage": "EnginesReady",
        "status": "False",
        "reason": "BuildFailed",
        "seconds": 1680,
    }
    names = [item["stage"] for item in stages(alone(), datetime.now(UTC).isoformat())]
    assert names[-1] == "Available"
