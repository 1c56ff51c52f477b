"""When a live object still is what we want."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specdec.api import names
from specdec.controller.drift import APPLIED, covers, marked

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
    """The same object as a server answers: defaults added, quantities in canonical form."""
    found = copy.deepcopy(DEPLOYMENT)
    found["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    found["spec"]["revisionHistoryLimit"] = 10
    pod = found["spec"]["template"]["spec"]
    del pod["tolerations"]
    pod["containers"][0]["resources"]["limits"] = {"cpu": "500m", "memory": "1Gi"}
    pod["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    pod["containers"].insert(0, {"name": "injected"})
    return found


def test_defaults_spelling_and_additions_are_no_drift() -> None:
    assert covers(live(), DEPLOYMENT)


def test_every_changed_field_is_drift() -> None:
    def changed(path: list[Any], value: Any) -> dict[str, Any]:
        found = live()
        place: Any = found
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
        return found

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


def test_what_the_server_leaves_out_is_false() -> None:
    assert covers({"spec": {}}, {"spec": {"publishNotReadyAddresses": False}})
    assert not covers({"spec": {}}, {"spec": {"publishNotReadyAddresses": True}})
    assert not covers({"spec": {"a": True}}, {"spec": {"a": False}})


def test_one_more_key_in_a_selector_is_drift_and_elsewhere_it_is_not() -> None:
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


def test_outside_quantities_equal_numbers_in_other_words_are_drift() -> None:
    assert not covers({"annotations": {"a": "1000m"}}, {"annotations": {"a": "1"}})
    assert covers({"limits": {"nvidia.com/gpu": "2"}}, {"limits": {"nvidia.com/gpu": 2}})


def test_a_mark_shows_that_a_field_was_dropped_from_the_intent() -> None:
    before = marked(DEPLOYMENT)
    assert covers(before, marked(DEPLOYMENT))
    less = copy.deepcopy(DEPLOYMENT)
    del less["spec"]["replicas"]
    assert covers(before, less)
    assert not covers(before, marked(less))


def test_shared_objects_and_jobs_carry_no_mark() -> None:
    shared = {"kind": "ConfigMap", "metadata": {"name": "e", "labels": {names.ENGINE: "k"}}}
    assert marked(shared) == shared
    job = {"kind": "Job", "metadata": {"name": "j"}}
    assert marked(job) == job
    assert APPLIED in marked(DEPLOYMENT)["metadata"]["annotations"]


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
def test_a_field_more_never_matters(intent: dict[str, Any], more: Any) -> None:
    assert covers({**intent, "a field of somebody": more}, intent)
