"""The OpenAI endpoint in the objects: its container, its ports and the end of its pod."""

from typing import Any

from specdec.api.model import SpeculativeModel
from specdec.desired import network, policy
from specdec.images.openai.__main__ import _parser
from support.simulated_cluster import resource, settled

Json = dict[str, Any]


def pod(serving: Json, **spec: Any) -> Json:
    world = settled(resource(serving=serving, **spec))
    (body,) = [b for (kind, _), b in world.ever_applied.items() if kind == "Deployment"]
    result: Json = body["spec"]["template"]["spec"]
    return result


def options(container: Json) -> dict[str, str]:
    command = container["command"]
    assert command[:3] == ["python", "-m", "specdec.images.openai"]
    return dict(zip(command[3::2], command[4::2], strict=True))


def test_pod_has_the_endpoint_only_if_the_resource_requests_it() -> None:
    assert [c["name"] for c in pod({})["containers"]] == ["server"]
    names = [c["name"] for c in pod({"openAI": {}})["containers"]]
    assert names == ["server", "openai"]


def test_defaults_are_those_of_the_program() -> None:
    values = options(pod({"openAI": {}})["containers"][1])
    arguments = [part for pair in values.items() for part in pair]
    parsed = vars(_parser().parse_args(arguments))
    defaults = vars(_parser().parse_args(["--served-model-name", "pair"]))
    differing = {name for name, value in parsed.items() if value != defaults[name]}
    # An answer may take as long as the server's drain period.
    assert differing == {"tokenizer", "drain_seconds"}
    assert str(parsed["tokenizer"]).startswith("/models/checkpoints/")


def test_the_container_follows_the_spec() -> None:
    endpoint = {
        "port": 9100,
        "servedModelName": "org/model",
        "chatTemplate": {"name": "chat", "key": "own.jinja"},
        "toolCallParser": "hermes",
        "limits": {"bodyBytes": 2048, "requestsInFlight": 3, "timeoutSeconds": 9},
        "resources": {"limits": {"memory": "300Mi"}},
    }
    spec = pod({"openAI": endpoint, "drain": {"timeoutSeconds": 7}})
    server, container = spec["containers"]
    values = options(container)
    assert values["--port"] == "9100"
    assert values["--served-model-name"] == "org/model"
    assert values["--tool-call-parser"] == "hermes"
    assert "--reasoning-parser" not in values
    assert values["--drain-seconds"] == "7"
    limits = ("--max-body-bytes", "--max-in-flight", "--timeout-seconds")
    assert [values[name] for name in limits] == ["2048", "3", "9"]
    assert container["resources"] == {"limits": {"memory": "300Mi"}}
    assert container["image"] != server["image"]
    (volume,) = [v for v in spec["volumes"] if v["name"] == "chat-template"]
    (item,) = volume["configMap"]["items"]
    assert volume["configMap"]["name"] == "chat"
    assert item["key"] == "own.jinja"
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "chat-template"]
    assert values["--chat-template"] == f"{mount['mountPath']}/{item['path']}"


def test_container_is_restricted_and_cannot_write_models() -> None:
    server, container = pod({"openAI": {}})["containers"]
    assert container["securityContext"] == server["securityContext"]
    assert container["imagePullPolicy"] == server["imagePullPolicy"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts.keys() == {"models", "tmp"}
    assert mounts["models"]["readOnly"] is True
    assert not [v for v in container["env"] if "valueFrom" in v]


def test_server_ends_after_the_endpoint() -> None:
    server, container = pod({"openAI": {"port": 9100}})["containers"]
    hook = server["lifecycle"]["preStop"]["exec"]["command"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", hook[2]]
    assert hook[-1].split(",") == ["8000", "8001", "9100"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def test_the_service_and_the_policy_have_its_port() -> None:
    spec = {"networkPolicy": {"mode": "Enabled"}}
    model = SpeculativeModel.parse(resource(serving={"openAI": {}}, networking=spec))
    ports = {p["name"]: p["port"] for p in network.service(model)["spec"]["ports"]}
    assert ports["openai"] == 9000
    (body,) = policy.objects(model)
    assert 9000 in [p["port"] for p in body["spec"]["ingress"][0]["ports"]]
    assert network.endpoint(model, "target")["openAI"] == "http://pair.demo.svc:9000/v1"
    plain = SpeculativeModel.parse(resource(networking=spec))
    assert "openAI" not in network.endpoint(plain, "target")
