"""The main use: apply a resource, and get speculative tokens from a real tritonserver pod."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import DEADLINE_SECONDS
from demo.story import prompts
from e2e.printed import as_printed
from e2e.world import NO_DRAFT, PAIR, SHARED, Object, World, model
from specdec.client import Client, Request, metrics
from support.quickstarts import ROOT, typed

GUIDED = "reference-draft-target"
OTHERS = (
    model("plain", speculation={**NO_DRAFT, "method": "None"}),
    model("ahead", speculation={**NO_DRAFT, "method": "Lookahead", "lookahead": {}}),
    model(
        "ngram",
        speculation={
            **NO_DRAFT,
            "method": "NGram",
            "maxDraftTokens": 8,
            "nGram": {"minMatch": 1},
        },
    ),
)


def test_sample_is_served_and_speculates_without_loss(world: World) -> None:
    """The resource requests no GPU: the node offers none until a test needs them."""
    ready = world.ready(world.apply(model("answers")))
    assert ready["status"]["phase"] == "Serving"
    assert ready["status"]["readyReplicas"] == 1
    assert ready["status"]["plan"]["gpusPerPod"] == 0
    host = world.host("answers")
    before = metrics.read(f"{host}:8002")
    chunks = 0
    with Client(f"{host}:8001", timeout=DEADLINE_SECONDS) as client:
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


@pytest.fixture
def own_checkpoints(world: World, served: str) -> Iterator[dict[str, Path]]:
    """Yield copies of the pair's checkpoints on the claim of the services, by role."""
    assert world.get(served)["spec"]["storage"]["existingClaim"] == SHARED, "the claim is bound"
    root, made = world.folder(SHARED), {}
    for role in ("target", "draft"):
        made[role] = root / "mine" / role
        shutil.copytree(world.folder(PAIR) / role, made[role])
        # Another file gives the checkpoint another digest than that of the pair.
        (made[role] / "note.json").write_text("{}")
    stored = set((root / "checkpoints").glob("*"))
    yield made
    shutil.rmtree(root / "mine")
    for entry in set((root / "checkpoints").glob("*")) - stored:
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def test_checkpoints_on_the_own_claim_are_served_in_place(
    world: World, own_checkpoints: dict[str, Path]
) -> None:
    def own(role: str) -> Object:
        return {"pvc": {"claimName": SHARED, "path": f"mine/{role}"}}

    spec: Object = {
        "target": {"source": own("target")},
        "speculation": {"draftTarget": {"draft": {"source": own("draft")}}},
    }
    status = world.ready(world.apply(model("in-place", **spec)))["status"]

    assert world.text("in-place", "def f(", max_tokens=8)
    for entry in status["models"]:
        stored = world.folder(SHARED) / "checkpoints" / entry["digest"]
        files = own_checkpoints[entry["role"]]
        assert {p.name for p in stored.iterdir()} == {p.name for p in files.iterdir()}
        assert all(p.is_symlink() and p.samefile(files / p.name) for p in stored.iterdir())
    assert "copy" not in world.condition("in-place", "ModelsFetched")["message"]
    world.clean()


def test_kubectl_output_and_events_show_every_stage(world: World, served: str) -> None:
    row = world.kubectl("get", "specm", served).splitlines()[1].split()
    assert row[:5] == [served, "DraftTarget", "Reference", "1/1", "Serving"]
    described = world.kubectl("describe", "specm", served)
    stages = ("Accepted", "StorageReady", "ModelsFetched", "Compatible", "EnginesReady")
    for word in (*stages, "RepositoryReady", "Available", "Events:"):
        assert word in described
    # A check that passes at once has no event, such as that of engines that are on the volume.
    expected = {"BelowFixLevel", "Fetched", "Published", "Serving"}

    def reasons() -> set[str]:
        events = world.listed("events.events.k8s.io")
        return {e["reason"] for e in events if e.get("regarding", {}).get("name") == served}

    # An event appears after the status that it reports.
    world.wait(
        lambda: expected <= reasons(),
        lambda: f"{expected - reasons()} was never reported",
    )
    for condition in world.get(served)["status"]["conditions"]:
        assert condition["message"], f"{condition['type']} has no message"


def test_other_methods_answer_like_draft_target(world: World, served: str) -> None:
    for name in [world.apply(body) for body in OTHERS]:
        world.ready(name)
    before = metrics.read(f"{world.host('ngram')}:8002")
    for prompt in prompts(3):
        answers = {n: world.text(n, prompt) for n in ("plain", "ahead", "ngram", served)}
        assert len(set(answers.values())) == 1, answers
    did = metrics.read(f"{world.host('ngram')}:8002") - before
    assert did.accepted > 0


def test_guide_runs_as_printed_and_the_resource_deletes_its_claim(world: World) -> None:
    """Run the commands of docs/start-cpu.md from the models to the answers, and the deletion."""
    commands = typed(ROOT / "docs" / "start-cpu.md")
    begin = [command[-1] for command in commands].index("manifests/samples/reference-pair.yaml")
    end = commands.index(["kubectl", "delete", "specm", GUIDED])
    drafted: list[subprocess.CompletedProcess[str]] = []
    plain: list[subprocess.CompletedProcess[str]] = []
    for command in commands[begin:end]:
        if command[1] in ("plan", "render"):
            continue
        done = as_printed(world, command)
        if command[1] == "generate":
            assert done.stdout.strip()
            (plain if "--draft-tokens" in command else drafted).append(done)
    assert "accepted" in drafted[0].stderr
    assert "no draft tokens were used" in plain[0].stderr
    assert plain[0].stdout == drafted[0].stdout
    assert world.get(GUIDED)["status"]["plan"]["gpusPerPod"] == 0

    claim = f"{GUIDED}-models"
    assert world.unfinished(claim) == []
    as_printed(world, commands[end])
    world.wait(
        lambda: world.find("pvc", claim) is None,
        lambda: json.dumps(world.find("pvc", claim)),
    )
    assert world.find("pvc", PAIR) is not None
