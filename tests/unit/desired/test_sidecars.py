"""Containers that a resource adds to its server pods."""

import re
from typing import Any

import pytest

from specdec.api import names
from specdec.api.model import SpeculativeModel
from specdec.desired import openai, pod, proxy, serving, tls
from specdec.images.serving import agent
from specdec.servers import proxied
from specdec.triton import launch
from support.documents import definition
from support.simulated_cluster import World, fetched, resource
from unit.pipeline import test_group

LOGS = {"name": "logs", "emptyDir": {}}
SHIPPER: dict[str, Any] = {
    "name": "log-shipper",
    "image": "registry.example/shipper:1.2",
    "command": ["ship", "--to=$(TARGET)"],
    "args": ["--quiet"],
    "env": [
        {"name": "TARGET", "value": "logs.example:9999"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "shipper", "key": "token"}}},
    ],
    "ports": [{"containerPort": 9100, "name": "health"}],
    "resources": {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    "startupProbe": {"exec": {"command": ["ship", "--check"]}},
    "readinessProbe": {"httpGet": {"port": 9100, "path": "/ready"}, "periodSeconds": 7},
    "livenessProbe": {"tcpSocket": {"port": 9100}},
    "volumeMounts": [{"name": "logs", "mountPath": "/var/log/server", "readOnly": False}],
}
PLAIN = {"name": "plain", "image": "registry.example/plain:1"}


def served(**more: Any) -> dict[str, Any]:
    return {"extraVolumes": [LOGS], "sidecars": [SHIPPER, PLAIN], **more}


def pod_spec(**more: Any) -> dict[str, Any]:
    world = World(resource(serving=served(**more)))
    world.settle(lambda component: fetched() if component == "fetch" else {})
    spec: dict[str, Any] = world.ever_applied["Deployment", "pair"]["spec"]["template"]["spec"]
    return spec


def test_sidecars_start_before_the_server_and_stop_after_it() -> None:
    spec = pod_spec(openAI={})
    assert [item["name"] for item in spec["initContainers"]] == ["log-shipper", "plain"]
    assert {item["restartPolicy"] for item in spec["initContainers"]} == {"Always"}
    assert [item["name"] for item in spec["containers"]] == ["server", "openai"]


def test_a_sidecar_has_what_the_resource_gives_it() -> None:
    shipper, plain = pod_spec()["initContainers"]
    for field in ("image", "command", "args"):
        assert shipper[field] == SHIPPER[field]
    for variable in SHIPPER["env"]:
        assert variable in shipper["env"]
    assert shipper["ports"] == [{"containerPort": 9100, "name": "health", "protocol": "TCP"}]
    assert shipper["resources"] == SHIPPER["resources"]
    assert shipper["startupProbe"] == SHIPPER["startupProbe"]
    assert shipper["readinessProbe"] == {
        "httpGet": {"port": 9100, "path": "/ready", "scheme": "HTTP"},
        "periodSeconds": 7,
    }
    assert shipper["livenessProbe"] == SHIPPER["livenessProbe"]
    assert {"name": "extra-logs", "mountPath": "/var/log/server", "readOnly": False} in (
        shipper["volumeMounts"]
    )
    assert not {"command", "args", "ports", "resources", "readinessProbe"} & set(plain)


def test_a_sidecar_is_restricted_as_our_own_containers_and_shares_only_extra_volumes() -> None:
    spec = pod_spec()
    server = spec["containers"][0]
    for sidecar in spec["initContainers"]:
        assert sidecar["securityContext"] == server["securityContext"]
    mounts = [{m["name"] for m in item["volumeMounts"]} for item in spec["initContainers"]]
    assert mounts == [{"sidecar-log-shipper", "extra-logs"}, {"sidecar-plain"}]
    assert not mounts[0] & {m["name"] for m in server["volumeMounts"]}
    volumes = {item["name"]: item for item in spec["volumes"]}
    assert volumes["sidecar-plain"] == {"name": "sidecar-plain", "emptyDir": {}}
    assert not any(pod.GPU in str(item) for item in spec["initContainers"])


def test_an_image_that_asks_for_all_gpus_gets_none() -> None:
    """NVIDIA's CUDA images set the variable to all, and its container runtime follows.

    The toolkit (nvidia-container-toolkit, internal/config/image/cuda_image.go) gives no device for
    `void`, and all devices to an old image (CUDA_VERSION) without the variable.
    """
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    spec = pod_spec()
    assert all(hidden in item["env"] for item in spec["initContainers"])
    assert hidden in spec["containers"][0]["env"], "the Reference server has no GPU"


def test_the_device_plugin_decides_over_the_gpus_of_a_server() -> None:
    group = test_group.served(**served()).ever_applied[names.GROUP_KIND, "pair-group"]
    template = group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]
    server = template["containers"][0]
    assert server["resources"]["limits"][pod.GPU]
    assert "NVIDIA_VISIBLE_DEVICES" not in {item["name"] for item in server["env"]}
    shared = {"limits": {"nvidia.com/gpu.shared": "1"}}
    spec = pod_spec(resources=shared)
    assert pod.hidden_gpus(shared) == []
    assert "NVIDIA_VISIBLE_DEVICES" not in {item["name"] for item in spec["containers"][0]["env"]}


def test_a_server_without_sidecars_has_no_init_containers() -> None:
    assert "initContainers" not in pod_spec(sidecars=[])


def test_every_pod_of_a_group_has_the_sidecars() -> None:
    world = test_group.served(**served())
    group = world.ever_applied[names.GROUP_KIND, "pair-group"]["spec"]["leaderWorkerTemplate"]
    for part in ("leaderTemplate", "workerTemplate"):
        started = [item["name"] for item in group[part]["spec"]["initContainers"]]
        assert started == ["log-shipper", "plain"]


def test_no_sidecar_may_have_a_name_or_a_port_of_ours() -> None:
    """The rules of the definition list all names and ports that the operator uses."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]["serving"]["properties"]["sidecars"]
    fields = spec["items"]["properties"]
    rules = " ".join(rule["rule"] for rule in fields["name"]["x-kubernetes-validations"])
    ours = {serving.CONTAINER, openai.CONTAINER, proxy.CONTAINER, tls.WATCHER}
    assert set(re.findall(r"'([a-z]+)'", rules)) == ours
    port = fields["ports"]["items"]["properties"]["containerPort"]
    (rule,) = (item["rule"] for item in port["x-kubernetes-validations"])
    first, last = map(int, re.findall(r"\d+", rule))
    used = {*launch.PORTS.values(), *proxied.PORTS.values(), proxied.PORT, agent.PORT}
    assert used == set(range(first, last + 1))


@pytest.mark.parametrize("part", ["image", "args", "volumeMounts"])
def test_a_changed_sidecar_replaces_the_pods_and_builds_nothing(part: str) -> None:
    changed = {"image": "registry.example/plain:2", "args": ["x"], "volumeMounts": []}[part]
    before = serving.deployment(model([SHIPPER]), REVISION, VOLUME, 1)
    after = serving.deployment(model([{**SHIPPER, part: changed}]), REVISION, VOLUME, 1)
    assert before["spec"]["template"] != after["spec"]["template"]
    containers = [body["spec"]["template"]["spec"]["containers"] for body in (before, after)]
    assert containers[0] == containers[1]


REVISION = serving.Revision("f" * 64, "image")
VOLUME = pod.Volume("models", "uid", single_node=False)


def model(sidecars: list[dict[str, Any]]) -> SpeculativeModel:
    return SpeculativeModel.parse(resource(serving=served(sidecars=sidecars)))
