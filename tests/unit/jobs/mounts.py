"""The mounts of the publish Job's pod: engines on the volume, and a repository's ConfigMap."""

import json
from pathlib import Path
from typing import Any

from specdec.desired import repository as desired
from specdec.jobs import publish
from support.simulated_cluster import World, resource

FILES = {"ensemble/config.pbtxt": "name: 'ensemble'\n", "ensemble/1/.keep": ""}
KEYS = {"target": "a" * 64, "draft": "b" * 64}


def expectation(role: str, **changed: Any) -> dict[str, Any]:
    target = role == "target"
    return {
        "role": role,
        "key": KEYS[role],
        "path": f"/models/engines/{KEYS[role]}",
        "prebuilt": False,
        "version": "0.19.0",
        "minDraftLen": 8 if target else 0,
        "speculativeDecodingMode": "draft_tokens_external" if target else "none",
        "tensorParallel": 1,
        "pipelineParallel": 1,
        "minBatchSize": 16,
        "minSeqLen": 512,
        "sameVocabulary": True,
        **changed,
    }


def engine(volume: Path, role: str, **changed: Any) -> Path:
    """Write an engine directory as the build does; `changed` replaces build_config values."""
    target = role == "target"
    folder = volume / "engines" / KEYS[role]
    folder.mkdir(parents=True, exist_ok=True)
    build = {
        "max_draft_len": 8 if target else 0,
        "speculative_decoding_mode": 2 if target else 1,
        "max_batch_size": 16,
        "max_seq_len": 520 if target else 512,
        **changed,
    }
    config = {
        "version": "0.19.0",
        "pretrained_config": {"vocab_size": changed.pop("vocab_size", 1024)},
        "build_config": build,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").write_text("{}")
    (folder / "rank0.engine").write_bytes(b"engine")
    return folder


class Mounts:
    """The volume and the files of the ConfigMap, as the Job's pod mounts them."""

    def __init__(self, root: Path, volume: Path) -> None:
        self.root, self.volume = root, volume
        self.engines = [expectation("target"), expectation("draft")]
        self.checkpoints: dict[str, dict[str, Any]] = {}
        world = World(resource())
        self.model = world.model()
        for role in KEYS:
            engine(volume, role)

    def run(
        self, files: dict[str, str] | None = None, name: str = "f" * 64, *, content: bool = False
    ) -> int:
        files = FILES if files is None else files
        config = desired.config_map(self.model, name, files, self.engines, self.checkpoints)
        mount = self.root / "mount"
        for key, path in ((k, p) for p in files for k in config["data"] if is_key_of(k, p)):
            target = mount / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(config["data"][key])
        expectations = self.root / "expectations.json"
        expectations.write_text(config["data"][desired.EXPECTATIONS_KEY])
        arguments = ["--repository", str(mount), "--expectations", str(expectations)]
        arguments += ["--content"] if content else []
        return publish.main([*arguments, "--volume", str(self.volume)])

    @property
    def published(self) -> list[str]:
        folder = self.volume / "repositories"
        if not folder.exists():
            return []
        return [p.name for p in folder.iterdir() if not p.name.startswith(".")]


def is_key_of(key: str, path: str) -> bool:
    """Return whether the Job's volume projects a key of the ConfigMap to a path."""
    return key == desired._key(path)
