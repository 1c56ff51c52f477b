"""The main job: apply a resource, get speculative tokens from a real tritonserver pod."""

import json

from demo.story import prompts
from e2e.world import DEADLINE_SECONDS, PAIR, World, model
from specdec.client import Client, Request, metrics


def test_sample_is_served_and_speculates_without_loss(world: World) -> None:
    devices = {"gpu": {"deviceIds": [0]}}
    body = model("answers", target=devices)
    body["spec"]["speculation"]["draftTarget"]["draft"]["gpu"] = {"deviceIds": [1]}
    ready = world.ready(world.apply(body))
    assert ready["status"]["phase"] == "Serving"
    assert ready["status"]["readyReplicas"] == 1
    assert ready["status"]["plan"]["devices"] == {"target": [0], "draft": [1]}
    pod = world.pods("answers")[0]
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    host = world.address("answers").partition(":")[0]
    before = metrics.read(f"{host}:8002")
    chunks = 0
    with Client(f"{host}:8001", timeout=60) as client:
        for prompt in prompts(8):
            plain = client.ask(Request(prompt, model="ensemble", stream=False))
            streamed = client.ask(Request(prompt))
            assert streamed.text == plain.text
            chunks += streamed.chunks
            assert client.ask(Request(prompt, stream=False)).text == plain.text
    did = metrics.read(f"{host}:8002") - before
    assert chunks > 8, "no answer came in more than one piece"
    assert did.rounds < did.generated, "no round ever yielded more than one token"
    assert 0 < did.accepted <= did.drafted


def test_kubectl_output_and_events_show_every_stage(world: World, served: str) -> None:
    row = world.kubectl("get", "specm", served).splitlines()[1].split()
    assert row[:5] == [served, "DraftTarget", "Reference", "True", "Serving"]
    described = world.kubectl("describe", "specm", served)
    stages = ("Accepted", "StorageReady", "ModelsFetched", "Compatible", "EnginesReady")
    for word in (*stages, "RepositoryReady", "Available", "Events:"):
        assert word in described
    expected = {"BelowFixLevel", "Bound", "Fetched", "Fits", "Built", "Published", "Serving"}

    def reasons() -> set[str]:
        events = world.listed("events.events.k8s.io")
        return {e["reason"] for e in events if e.get("regarding", {}).get("name") == served}

    # Events follow the status that they report.
    world.wait(
        lambda: expected <= reasons(),
        DEADLINE_SECONDS,
        lambda: f"{expected - reasons()} was never reported",
    )
    for condition in world.get(served)["status"]["conditions"]:
        assert condition["message"], f"{condition['type']} has no message"


def test_plain_and_lookahead_resources_answer_like_draft_target(world: World, served: str) -> None:
    nothing = {"draftTarget": None, "draftTokens": None, "maxDraftTokens": None}
    world.apply(model("plain", speculation={"method": "None", **nothing}))
    world.apply(model("ahead", speculation={"method": "Lookahead", "lookahead": {}, **nothing}))
    for name in ("plain", "ahead"):
        world.ready(name)
    for prompt in prompts(3):
        answers = {n: world.text(n, prompt) for n in ("plain", "ahead", served)}
        assert len(set(answers.values())) == 1, answers


def test_own_claim_is_created_and_deleted_with_the_resource(world: World) -> None:
    world.ready(world.apply(model("own", claim=None)))
    assert world.unfinished("own-models") == []
    world.kubectl("delete", "specm", "own")
    world.wait(
        lambda: world.kubectl.get("pvc", "own-models") is None,
        DEADLINE_SECONDS,
        lambda: json.dumps(world.kubectl.get("pvc", "own-models")),
    )
    assert world.kubectl.get("pvc", PAIR) is not None
