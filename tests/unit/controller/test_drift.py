"""When a live object counts as equal to its desired state."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specdec.api import names
from specdec.controller.drift import APPLIED, covers, with_hash

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a", "namespace": "ns", "labels": {"x": "1"}},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "server",
                        "command": ["tritonserver", "--http-port=8000"],
                        "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
                "tolerations": [],
            }
        },
    },
}


def live() -> dict[str, Any]:
    """Return the object as an API server stores it: with defaults and canonical quantities."""
    stored = copy.deepcopy(DEPLOYMENT)
    stored["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    stored["spec"]["revisionHistoryLimit"] = 10
    pod = stored["spec"]["template"]["spec"]
    del pod["tolerations"]
    pod["containers"][0]["resources"]["limits"] = {"cpu": "500m", "memory": "1Gi"}
    pod["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    pod["containers"].insert(0, {"name": "injected"})
    return stored


def test_defaults_spelling_and_additional_fields_are_not_drift() -> None:
    assert covers(live(), DEPLOYMENT)


def test_every_changed_field_is_drift() -> None:
    def changed(path: list[Any], value: Any) -> dict[str, Any]:
        stored = live()
        parent: Any = stored
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = value
        return stored

    pod = ["spec", "template", "spec"]
    for path, value in (
        (["metadata", "labels", "x"], "2"),
        (["metadata", "labels"], {}),
        (["spec", "replicas"], 3),
        ([*pod, "containers", 1, "command"], ["tritonserver"]),
        ([*pod, "containers", 1, "command"], ["tritonserver", "--http-port=8000", "--more"]),
        ([*pod, "containers", 1, "resources", "limits", "memory"], "2Gi"),
        ([*pod, "containers"], []),
        ([*pod, "volumes"], None),
        ([*pod, "volumes", 0, "emptyDir"], "none"),
    ):
        assert not covers(changed(path, value), DEPLOYMENT), path


def test_omitted_field_equals_false() -> None:
    assert covers({"spec": {}}, {"spec": {"publishNotReadyAddresses": False}})
    assert not covers({"spec": {}}, {"spec": {"publishNotReadyAddresses": True}})
    assert not covers({"spec": {"a": True}}, {"spec": {"a": False}})


def test_additional_key_is_drift_in_selectors_only() -> None:
    service = {"spec": {"selector": {"app": "a"}, "type": "ClusterIP"}}
    more = {"selector": {"app": "a", "track": "b"}}
    assert covers({"spec": {**service["spec"], "clusterIP": "10.0.0.1"}}, service)
    assert not covers({"spec": {**service["spec"], **more}}, service)
    pods = {"matchLabels": {"app": "a"}}
    more = {"matchLabels": {"app": "a", "track": "b"}}
    for key in ("selector", "podSelector"):
        assert covers({key: pods}, {key: pods})
        assert not covers({key: more}, {key: pods})
        assert covers({key: None}, {key: {}})
    assert covers({"labels": {"app": "a", "track": "b"}}, {"labels": {"app": "a"}})


def test_other_spelling_of_a_number_is_drift_outside_quantities() -> None:
    assert not covers({"annotations": {"a": "1000m"}}, {"annotations": {"a": "1"}})
    assert covers({"limits": {"nvidia.com/gpu": "2"}}, {"limits": {"nvidia.com/gpu": 2}})


def test_hash_shows_that_intent_lost_a_field() -> None:
    before = with_hash(DEPLOYMENT)
    assert covers(before, with_hash(DEPLOYMENT))
    less = copy.deepcopy(DEPLOYMENT)
    del less["spec"]["replicas"]
    assert covers(before, less)
    assert not covers(before, with_hash(less))


def test_shared_objects_and_jobs_have_no_hash() -> None:
    shared = {"kind": "ConfigMap", "metadata": {"name": "e", "labels": {names.ENGINE: "k"}}}
    assert with_hash(shared) == shared
    job = {"kind": "Job", "metadata": {"name": "j"}}
    assert with_hash(job) == job
    assert APPLIED in with_hash(DEPLOYMENT)["metadata"]["annotations"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(value, value)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), JSON)
def test_additional_field_is_never_drift(intent: dict[str, Any], more: Any) -> None:
    assert covers({**intent, "a field of another client": more}, intent)
