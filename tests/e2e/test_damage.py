"""A damaged volume of a service is reported, repaired and served again automatically."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.test_healing import fresh, kill
from e2e.world import DEADLINE_SECONDS, SHARED, Object, World

NAME = "damage"
SECONDS = 180.0


class Served:
    """A service of engines that no other test uses, and its directories on the volume."""

    def __init__(self, world: World) -> None:
        self.world, self.root = world, world.folder(SHARED)
        world.apply(fresh(NAME, 237), keep=True)
        world.ready(NAME)
        self.answer = world.text(NAME, "def f(", max_tokens=16)

    def status(self) -> Object:
        status: Object = self.world.get(NAME)["status"]
        return status

    def engine(self, role: str) -> Path:
        (key,) = [e["key"] for e in self.status()["engines"] if e["role"] == role]
        return self.root / "engines" / str(key)

    def tokenizer(self) -> Path:
        (digest,) = [m["digest"] for m in self.status()["models"] if m["role"] == "target"]
        return self.root / "checkpoints" / str(digest) / "tokenizer.json"

    def foreign(self) -> Path:
        revision = str(self.status()["repository"]["hash"])
        return self.root / "repositories" / revision / "foreign"


@pytest.fixture(scope="module")
def service(world: World) -> Iterator[Served]:
    yield Served(world)
    world.kubectl("delete", "specm", NAME, "--ignore-not-found", timeout=DEADLINE_SECONDS)


def flip(service: Served) -> str:
    """One byte in the middle of the draft's weights: a server loads and serves that."""
    path = service.engine("draft") / "rank0.engine"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x40]))
    return "rank0.engine has other content"


def truncate_engine(service: Served) -> str:
    os.truncate(service.engine("target") / "rank0.engine", 4096)
    return "rank0.engine has 4096 bytes"


def truncate_tokenizer(service: Served) -> str:
    os.truncate(service.tokenizer(), 1000)
    return "tokenizer.json has 1000 bytes"


def add_model(service: Served) -> str:
    (service.foreign() / "1").mkdir(parents=True)
    (service.foreign() / "config.pbtxt").write_text('name: "foreign"\nbackend: "none"\n')
    return "foreign does not belong there"


# Each event is reported by the stage that creates the files again.
REASONS: dict[Callable[[Served], str], str] = {
    flip: "EngineDamaged",
    truncate_engine: "EngineDamaged",
    truncate_tokenizer: "CheckpointDamaged",
    add_model: "VolumeDamaged",
}


def events(world: World, reason: str) -> list[tuple[str, str]]:
    """Names and notes of the resource's events with a reason."""
    return [
        (event["metadata"]["name"], event["note"])
        for event in world.listed("events.events.k8s.io")
        if event.get("regarding", {}).get("name") == NAME and event["reason"] == reason
    ]


@pytest.mark.parametrize("start", ["pod", "container"])
@pytest.mark.parametrize("damage", REASONS, ids=lambda damage: str(damage.__name__))
def test_damage_is_reported_and_repaired(
    damage: Callable[[Served], str], start: str, world: World, service: Served
) -> None:
    (pod,) = world.pods(NAME)
    before = {name for name, _ in events(world, REASONS[damage])}
    sentence = damage(service)
    if start == "pod":
        kill(world, pod["metadata"]["name"])
    else:
        end = "import os, signal; os.kill(1, signal.SIGTERM)"
        world.kubectl("exec", pod["metadata"]["name"], "--", "python3", "-c", end)
    named = world.until(NAME, "Available", "VolumeDamaged")
    assert sentence in named["message"]
    world.ready(NAME, SECONDS)
    new = [note for name, note in events(world, REASONS[damage]) if name not in before]
    assert any(sentence in note for note in new), new
    assert world.text(NAME, "def f(", max_tokens=16) == service.answer
    assert world.unfinished(SHARED) == []
    assert not service.foreign().exists()
    (after,) = world.pods(NAME)
    restarts = after["status"]["containerStatuses"][0]["restartCount"]
    assert restarts <= (0 if start == "pod" else 4), "it waited, the kubelet did not try again"
