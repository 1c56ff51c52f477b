"""The applied Jobs run in sequence, and each Job uses the output of the previous Job.

A local folder replaces the volume; only the paths differ from those in a pod.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import DEADLINE_SECONDS
from specdec.triton import library
from support.oracle import Tiny
from support.simulated_cluster import World, resource, settled
from unit.jobs.checkpoints import tokenizer

LIMITS = {"maxBatchSize": 4, "maxInputLen": 64, "maxSeqLen": 128}


@dataclass
class Node:
    """Runs the Jobs of a simulated cluster as local processes."""

    world: World
    root: Path

    @property
    def volume(self) -> Path:
        return self.root / "models"

    def run(self, name: str) -> dict[str, Any]:
        """Run a Job's command to its end and pass its result to the simulated cluster."""
        spec = self.world.jobs[name]["spec"]["template"]["spec"]
        container = spec["containers"][0]
        log = self.root / f"{name}.log"
        folders = self._mounts(name, spec)
        command = [
            self._localized(argument.replace("$$", "$"), folders)
            for argument in self._argv(container)
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "SPECDEC_TERMINATION_LOG": str(log)},
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        result: dict[str, Any] = json.loads(log.read_text())
        self.world.finish(name, result)
        return result

    def _argv(self, container: dict[str, Any]) -> list[str]:
        extra = []
        if "specdec.pipeline.validation.fetch_job" in container["command"]:
            extra = ["--volume", "/models", "--sources", "/sources"]
        elif "specdec.jobs.publish" in container["command"]:
            extra = ["--volume", "/models"]
        return [sys.executable, *container["command"][1:], *extra]

    def _mounts(self, name: str, spec: dict[str, Any]) -> dict[str, str]:
        """Write the ConfigMap volumes; return the local folder of each mount path."""
        folders = {"/models": str(self.volume), "/sources": str(self.root / "sources")}
        paths = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
        for volume in spec["volumes"]:
            if "configMap" not in volume:
                continue
            data = self.world.config_maps[volume["configMap"]["name"]]["data"]
            items = volume["configMap"].get("items") or [{"key": k, "path": k} for k in data]
            folder = self.root / name / volume["name"]
            for item in items:
                target = folder / item["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                text = data[item["key"]]
                plan = item["path"] == "plan.json"
                target.write_text(self._localized(text, folders) if plan else text)
            folders[paths[volume["name"]]] = str(folder)
        return folders

    def _localized(self, text: str, folders: dict[str, str]) -> str:
        """Replace the mount paths of a pod by local folders."""
        for path, place in folders.items():
            text = re.sub(rf"(?<![\w.])(?<!/){re.escape(path)}(?=/|$)", place, text)
        return text


def node(root: Path, method: str, *, own_claim: bool = False) -> Node:
    """Return a node for a resource of tiny models whose checkpoints are on claims.

    With `own_claim` they are on the claim on which the resource stores everything.
    """
    storage = {"existingClaim": "reference-pair"} if own_claim else {"size": "1Gi"}
    cr = resource(method, storage=storage)
    models = [cr["spec"]["target"]]
    if method == "DraftTarget":
        models.append(cr["spec"]["speculation"]["draftTarget"]["draft"])
    for model in models:
        role = model["source"]["pvc"]["path"]
        model["limits"] = LIMITS
        folder = root / "models" / role if own_claim else root / "sources" / role / role
        Tiny(seed=len(role)).write(folder)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (root / "models").mkdir(exist_ok=True)
    return Node(World(cr), root)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["None", "DraftTarget", "Lookahead"])
def test_jobs_publish_a_repository_for_checkpoints(method: str, tmp_path: Path) -> None:
    local_node = node(tmp_path, method)
    world = local_node.world
    world.bind()

    results: dict[str, dict[str, Any]] = {}
    for component in ("fetch", "engine", "publish"):
        world.step()
        for name in world.named(component):
            results[component] = local_node.run(name)
    world.step()

    assert world.condition("RepositoryReady")["status"] == "True", world.cr["status"]
    assert world.condition("Compatible")["reason"] in ("Fits", "FitsWithWarnings")
    status = world.cr["status"]
    published = local_node.volume / "repositories" / status["repository"]["hash"]
    files = {str(p.relative_to(published)) for p in published.rglob("*") if p.is_file()}
    assert len(files) == status["repository"]["files"]
    served = published / "tensorrt_llm_bls" / library.FILE
    assert served.read_bytes() == (library.folder() / library.FILE).read_bytes()
    configs = "".join((published / f).read_text() for f in files if f.endswith(".pbtxt"))
    for engine in status["engines"]:
        assert f"/models/engines/{engine['key']}" in configs
        assert (local_node.volume / "engines" / engine["key"] / "manifest.json").is_file()
    assert f"/models/checkpoints/{status['models'][0]['digest']}" in configs
    for name in (p.name for p in local_node.volume.glob("*/*") if p.is_dir()):
        assert re.fullmatch(r"[0-9a-f]{64}", name), "an unfinished directory is left"


@pytest.mark.slow
def test_jobs_serve_checkpoints_of_the_own_claim_in_place(tmp_path: Path) -> None:
    local_node = node(tmp_path, "DraftTarget", own_claim=True)
    world = local_node.world
    world.bind()
    for component in ("fetch", "engine", "publish"):
        world.step()
        for name in world.named(component):
            local_node.run(name)
    world.step()

    assert world.condition("RepositoryReady")["status"] == "True", world.cr["status"]
    for entry in world.cr["status"]["models"]:
        stored = local_node.volume / "checkpoints" / entry["digest"]
        own = local_node.volume / entry["role"]
        assert {path.name for path in stored.iterdir()} == {path.name for path in own.iterdir()}
        assert all(path.is_symlink() for path in stored.iterdir())
        # Pods mount the volume in different directories.
        moved = tmp_path / f"elsewhere-{entry['role']}"
        local_node.volume.rename(moved)
        assert (moved / stored.relative_to(local_node.volume) / "config.json").is_file()
        moved.rename(local_node.volume)


def test_python_models_are_published() -> None:
    world = settled(resource())
    volumes = world.jobs[world.job("publish")]["spec"]["template"]["spec"]["volumes"]
    paths = {i["path"] for v in volumes for i in v.get("configMap", {}).get("items", [])}
    for model in ("preprocessing", "postprocessing"):
        assert f"{model}/1/model.py" in paths
    bls = {path for path in paths if path.startswith("tensorrt_llm_bls/1/")}
    assert bls == {"tensorrt_llm_bls/1/.keep"}
