"""The operator reports and repairs a damaged volume, and serves the model again."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from demo.progress import why_not
from e2e.record import Record
from e2e.test_healing import kill
from e2e.world import Object, World, model

# Triton 2.51 exits while it loads if busy processors give a model's process no time for a second.
_STARVED = "boost::interprocess::lock_exception"
# Each service has a volume of its own, so that a test can damage both at the same time.
NAMES = ("damage-a", "damage-b")
BODIES = [model(name, claim=None) for name in NAMES]


class Served:
    """A service on a volume of its own, and its directories there."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.claim = f"{name}-models"
        self.root = world.folder(self.claim)
        self.answer = world.text(name, "def f(", max_tokens=16)

    def status(self) -> Object:
        status: Object = self.world.get(self.name)["status"]
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
def services(world: World) -> Iterator[list[Served]]:
    for body in BODIES:
        world.apply(body, keep=True)
    for name in NAMES:
        world.ready(name)
    yield [Served(world, name) for name in NAMES]
    world.kubectl("delete", "specm", *NAMES, "--ignore-not-found")


def flip(service: Served) -> str:
    """Change a byte in the middle of the draft's weights; a server still loads and serves them."""
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


# The stage that creates the files again reports the event with this reason.
REASONS: dict[Callable[[Served], str], str] = {
    flip: "EngineDamaged",
    truncate_engine: "EngineDamaged",
    truncate_tokenizer: "CheckpointDamaged",
    add_model: "VolumeDamaged",
}


def events(service: Served, reason: str) -> list[tuple[str, str]]:
    """Return names and notes of the resource's events with a reason."""
    return [
        (event["metadata"]["name"], event["note"])
        for event in service.world.listed("events.events.k8s.io")
        if event.get("regarding", {}).get("name") == service.name and event["reason"] == reason
    ]


class Damaged:
    """Damages the volume of a service, and restarts its pod or its container."""

    def __init__(
        self, service: Served, record: Record, damage: Callable[[Served], str], start: str
    ) -> None:
        self._service, self._world, self._start = service, service.world, start
        self._record = record
        self._reason = REASONS[damage]
        (pod,) = self._world.pods(service.name)
        self._before = {name for name, _ in events(service, self._reason)}
        self._sentence = damage(service)
        if start == "pod":
            kill(self._world, pod["metadata"]["name"])
        else:
            end = "import os, signal; os.kill(1, signal.SIGTERM)"
            self._world.kubectl("exec", pod["metadata"]["name"], "--", "python3", "-c", end)

    def reported(self) -> bool:
        """Return whether a condition has reported the damage.

        The message disappears when the repair begins. A poll may miss it, so this reads the watch.
        """
        return any(
            condition["reason"] == "VolumeDamaged" and self._sentence in condition["message"]
            for body in self._record.statuses
            if body["metadata"]["name"] == self._service.name
            for condition in body["status"].get("conditions", [])
        )

    @override
    def __str__(self) -> str:
        name = self._service.name
        return f"{self._start} of {name}: {why_not(self._world.get(name))}"

    def assert_repaired(self) -> None:
        service, world, name = self._service, self._world, self._service.name
        world.ready(name)
        notes = [n for event, n in events(service, self._reason) if event not in self._before]
        assert any(self._sentence in note for note in notes), notes
        assert world.text(name, "def f(", max_tokens=16) == service.answer
        assert world.unfinished(service.claim) == []
        assert not service.foreign().exists()
        (after,) = world.pods(name)
        (server,) = after["status"]["containerStatuses"]
        last = server.get("lastState", {}).get("terminated", {}).get("message", "")
        limit = (0 if self._start == "pod" else 4) + (_STARVED in last)
        assert server["restartCount"] <= limit, f"the kubelet started it again: {last}"


@pytest.mark.parametrize("number", range(len(REASONS)), ids=[d.__name__ for d in REASONS])
def test_damage_is_reported_and_repaired(
    number: int, world: World, services: list[Served], record: Record
) -> None:
    """Restart the pod of one service, and only the container of the other.

    The services alternate, because the kubelet delays each further restart of a container longer.
    """
    damage = list(REASONS)[number]
    starts = ("pod", "container") if number % 2 == 0 else ("container", "pod")
    waiting = [
        Damaged(service, record, damage, start)
        for service, start in zip(services, starts, strict=True)
    ]
    damaged = list(waiting)

    def all_reported() -> bool:
        waiting[:] = [item for item in waiting if not item.reported()]
        return not waiting

    world.wait(all_reported, lambda: f"not reported: {[*map(str, waiting)]}")
    for item in damaged:
        item.assert_repaired()
