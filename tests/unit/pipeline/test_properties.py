"""Properties of decisions, for every method and every order of events."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.api import conditions, names
from specdec.api.checkpoint_facts import NO_FACTS
from specdec.api.conditions import OPTIONAL, Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import CommonReason
from specdec.backends.facts import Checkpoint, Facts
from support.simulated_cluster import IMAGES, World, fetched, limits, resource
from unit.pipeline.tensorrt import built

EVENTS = st.lists(
    st.sampled_from(["bind", "finish", "fail", "serve", "suspend", "resume", "tokens", "length"]),
    max_size=14,
)
METHODS = st.sampled_from(["None", "DraftTarget", "Lookahead"])


def happen(world: World, event: str) -> None:
    open_jobs = [name for name, job in world.jobs.items() if "status" not in job]
    if event == "bind":
        world.bind()
    elif event == "finish" and open_jobs:
        fetch = "-fetch-" in open_jobs[0]
        world.finish(open_jobs[0], fetched() if fetch else {})
    elif event == "fail" and open_jobs:
        world.fail(open_jobs[0], "it failed")
    elif event == "serve" and world.deployment is not None:
        world.serve()
    elif event in ("suspend", "resume"):
        world.spec["suspend"] = event == "suspend"
    elif event == "tokens" and world.spec["speculation"]["method"] == "DraftTarget":
        tokens = world.spec["speculation"]["draftTokens"]
        world.spec["speculation"]["draftTokens"] = tokens % 8 + 1
    elif event == "length":
        length = world.spec["target"]["limits"]["maxSeqLen"]
        world.spec["target"]["limits"]["maxSeqLen"] = 812 - length


@settings(deadline=None)  # the first decision of a process reads payload and templates
@given(METHODS, EVENTS)
def test_decisions_are_sound_after_any_events(method: str, events: list[str]) -> None:
    world = World(resource(method))
    for event in events:
        happen(world, event)
        decision = world.step()
        applied = [(o["kind"], o["metadata"]["name"]) for o in decision.apply]
        assert len(set(applied)) == len(applied)
        deleted = {(ref.kind, ref.name) for ref in (*decision.delete, *decision.delete_last)}
        assert deleted.isdisjoint(applied)
        assert [c.type for c in decision.conditions] == [t for t in Type if t not in OPTIONAL]
        misplaced = [c for c in decision.conditions if c.type not in (*c.reason.types, Type.READY)]
        assert misplaced == []
        assert not list(nulls([dict(o) for o in decision.apply]))
        assert not list(nulls(dict(decision.status)))
        serving = decision.conditions[-1].status == "True"
        pipeline = [c for c in decision.conditions[:-1] if c.type not in conditions.MEASURED]
        assert serving == all(c.status == "True" for c in pipeline)


@settings(deadline=None)  # the first decision of a process reads payload and templates
@given(METHODS, EVENTS)
def test_resource_serves_in_the_end_after_any_events(method: str, events: list[str]) -> None:
    world = World(resource(method))
    for event in events:
        happen(world, event)
        world.step()
    world.spec["suspend"] = False
    for name in [n for n, job in world.jobs.items() if is_failed(job)]:
        world.delete("Job", name)
    world.settle()
    assert world.condition("Ready")["status"] == "True"


@settings(deadline=None)  # the first decision of a process reads payload and templates
@given(METHODS, EVENTS)
def test_decisions_are_stable_without_events(method: str, events: list[str]) -> None:
    world = World(resource(method))
    for event in events:
        happen(world, event)
        world.step()
    for _ in range(3):
        world.step()
    status, decision = json.dumps(world.cr["status"]), world.last
    assert world.step() == decision
    assert json.dumps(world.cr["status"]) == status


def is_failed(job: dict[str, Any]) -> bool:
    return any(c["type"] == "Failed" for c in job.get("status", {}).get("conditions", []))


def nulls(value: Any) -> Any:
    """Yield every nested value that is None."""
    if value is None:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from nulls(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from nulls(item)


def key(cr: dict[str, Any], role: str = "target", digest: str = "a" * 64) -> str:
    model = SpeculativeModel.parse(cr)
    checkpoints = {name: Checkpoint(name, digest, "", 0, NO_FACTS) for name in model.sources}
    facts = Facts(version="0.19.0", image=IMAGES.reference, checkpoints=checkpoints)
    return built(model, facts)[role].key


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "replicas": st.integers(0, 9),
            "streaming": st.booleans(),
            "sharedMemory": st.sampled_from(["1Gi", "2Gi"]),
        },
    ),
    st.integers(1, 8),
    st.booleans(),
    st.integers(1, 99),
)
def test_the_engine_key_ignores_what_does_not_change_bytes(
    serving: dict[str, Any], tokens: int, suspend: bool, percent: int
) -> None:
    changed = resource(serving=serving, suspend=suspend)
    changed["spec"]["speculation"]["draftTokens"] = tokens
    changed["spec"]["target"]["kvCache"] = {"memoryPercent": percent}
    changed["spec"]["target"]["gpu"] = {"deviceIds": [0]}
    changed["metadata"] |= {"name": "another", "uid": "another", "generation": 7}

    assert key(changed) == key(resource())


@given(
    st.sampled_from(
        [
            ("limits", limits(maxSeqLen=511)),
            ("limits", limits(maxBatchSize=15)),
            ("limits", limits(maxNumTokens=4096)),
            ("dtype", "Float16"),
        ]
    )
)
def test_the_engine_key_follows_what_changes_bytes(change: tuple[str, Any]) -> None:
    changed = resource()
    changed["spec"]["target"][change[0]] = change[1]
    assert key(changed) != key(resource())
    assert key(changed, "draft") == key(resource(), "draft")


def test_the_engine_key_follows_ceiling_method_role_and_checkpoint() -> None:
    more = resource()
    more["spec"]["speculation"]["maxDraftTokens"] = 9
    keys = {
        key(resource()),
        key(more),
        key(resource("None")),
        key(resource("Lookahead")),
        key(resource(), "draft"),
        key(resource(), digest="b" * 64),
    }
    assert len(keys) == 6
    assert key(more, "draft") == key(resource(), "draft")


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()))
def test_a_digest_does_not_depend_on_order(value: dict[str, Any]) -> None:
    assert names.digest(value) == names.digest(dict(reversed(list(value.items()))))


STATUS = st.sampled_from(["True", "False", "Unknown"])
SPOKEN = st.lists(STATUS, min_size=len(Type), max_size=len(Type))


def spoken(statuses: list[Any]) -> list[Condition]:
    return [Condition(t, s, CommonReason.WAITING) for t, s in zip(Type, statuses, strict=True)]


@given(SPOKEN, SPOKEN)
def test_conditions_keep_their_time_exactly_while_they_keep_their_status(
    before: list[Any], after: list[Any]
) -> None:
    old = conditions.merge([], spoken(before), 1, "first")
    new = conditions.merge(old, spoken(after), 2, "second")

    for a, b in zip(old, new, strict=True):
        kept = a["status"] == b["status"]
        assert b["lastTransitionTime"] == ("first" if kept else "second")
        assert b["observedGeneration"] == 2
    changed = {c.condition.type for c in conditions.transitions(old, spoken(after))}
    expected = {
        t for t, a, b in zip(Type, before, after, strict=True) if a != b and b != "Unknown"
    }
    assert changed == expected
