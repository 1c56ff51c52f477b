"""The prune Job never deletes a directory that a resource on the claim names."""

import json

from hypothesis import given
from hypothesis import strategies as st

from specdec.api.conditions import Condition, Type
from specdec.api.model import SpeculativeModel
from specdec.api.reasons import ReadyReason
from specdec.backends.facts import Facts
from specdec.desired.pod import Volume
from specdec.pipeline.observed import Neighbours, Observed
from specdec.pipeline.stage import Context
from specdec.pipeline.volume import references, retention
from specdec.tools.dry_run.simulated_cluster import Json
from support.simulated_cluster import IMAGES, NOW, resource

KINDS = ("checkpoints", "engines", "repositories")
NAME = st.sampled_from("abcdef")
NAMES = st.lists(NAME, max_size=3, unique=True)


@st.composite
def statuses(draw: st.DrawFn) -> Json:
    """Draw a status that names directories and has a history."""
    history = [
        {"revision": draw(NAME), "checkpoints": draw(NAMES), "engines": draw(NAMES)}
        for _ in range(draw(st.integers(0, 2)))
    ]
    return {
        "models": [{"digest": name} for name in draw(NAMES)],
        "engines": [{"key": name} for name in draw(NAMES)],
        "repository": {"hash": draw(NAME)},
        "serving": {"revision": draw(NAME)},
        "history": history,
    }


def settled(status: Json) -> Json:
    """Return another resource on the same claim that is not in progress."""
    types = ("ModelsFetched", "EnginesReady", "RepositoryReady")
    conditions = [{"type": t, "status": "True", "reason": "Fetched"} for t in types]
    body = resource(storage={"existingClaim": "pair-models"})
    body["metadata"]["uid"] = "uid-other"
    return body | {"status": {"observedGeneration": 1, "conditions": conditions, **status}}


@given(
    statuses(),
    st.lists(statuses(), max_size=3),
    st.fixed_dictionaries(dict.fromkeys(KINDS, NAMES)),
)
def test_nothing_that_is_referenced_is_ever_deleted(
    own: Json, theirs: list[Json], unused: dict[str, list[str]]
) -> None:
    model = SpeculativeModel.parse(resource(revisionHistoryLimit=1))
    others = [settled(status) for status in theirs]
    for number, body in enumerate(others):
        body["metadata"]["name"] = f"other-{number}"
    observed = Observed(NOW, neighbours=Neighbours(tuple(others)))
    facts = Facts(volume=Volume("pair-models", "uid", single_node=True))
    ready = Condition(Type.READY, "True", ReadyReason.SERVING)
    outcome = retention.retention(
        Context(model, observed, IMAGES, facts), {**own, "unused": unused}, ready
    )
    for intent in outcome.apply:
        command = intent["spec"]["template"]["spec"]["containers"][0]["command"]
        only = json.loads(command[command.index("--only") + 1])
        for status in (own, *theirs):
            used = references.merged(references.named(status), references.in_history(status))
            assert all(used[kind].isdisjoint(only.get(kind, [])) for kind in KINDS)
        assert all(set(only.get(kind, [])) <= set(unused[kind]) for kind in KINDS)
