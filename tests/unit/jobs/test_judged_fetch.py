"""The fetch Job judges configuration and tokenizer before it downloads any weights."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.desired import fetch
from specdec.desired.pod import Volume
from specdec.jobs import result
from specdec.pipeline.validation import fetch_job
from support.simulated_cluster import resource
from unit.backends.pytorch_cases import pytorch
from unit.jobs.checkpoints import config, tensors, tokenizer, visible, write
from unit.jobs.fake_hub import Hub, serving
from unit.jobs.termination import read_result
from unit.pipeline.tensorrt import tensorrt

OWN = Volume("own", "uid", single_node=True)
OTHER = tokenizer({"<|endoftext|>": 0, "a": 2, "b": 1, "ab": 3})


def hub_files(**files: Any) -> dict[str, bytes]:
    content = {"config.json": config(), "tokenizer.json": tokenizer(), **files}
    return {
        "model.safetensors": tensors(b"\1\2" * 40_000),
        **{name: json.dumps(value).encode() for name, value in content.items()},
    }


@pytest.fixture
def hubs() -> Iterator[dict[str, Hub]]:
    with ExitStack() as stack:
        yield {
            role: stack.enter_context(serving(Hub(hub_files()))) for role in ("target", "draft")
        }


def judged(cr: dict[str, Any], volume: Path) -> int:
    """Run the fetch Job of a resource, as its pod does."""
    plan = fetch.plan(SpeculativeModel.parse(cr), OWN)
    arguments = ["--plan", json.dumps(plan), "--volume", str(volume), "--sources", str(volume)]
    return fetch_job.main([*arguments, "--allow", "127.0.0.1/32"])


def pair(hubs: dict[str, Hub], **checks: str) -> dict[str, Any]:
    cr = resource(checks=checks)
    places = {"target": cr["spec"]["target"], **cr["spec"]["speculation"]["draftTarget"]}
    for role, hub in hubs.items():
        places[role]["source"] = {"huggingFace": {"repo": "acme/model", "endpoint": hub.url}}
    return cr


def weights(hubs: dict[str, Hub]) -> list[str]:
    """Return the requests for weights at all sources."""
    return [r for hub in hubs.values() for r in hub.gets("model.safetensors")]


def test_fitting_pair_is_fetched(hubs: dict[str, Hub], volume: Path) -> None:
    assert judged(pair(hubs), volume) == 0

    assert len(weights(hubs)) == 2
    assert read_result()["models"]["target"]["facts"]["parameters"] == 40_000
    # No configuration is downloaded twice.
    assert [len(hub.gets("config.json")) for hub in hubs.values()] == [1, 1]


def test_pair_with_other_tokenizers_is_refused_before_any_weights(
    hubs: dict[str, Hub], volume: Path
) -> None:
    hubs["draft"].files = hub_files(**{"tokenizer.json": OTHER})

    assert judged(pair(hubs), volume) == result.PERMANENT

    error = read_result()["error"]
    assert error["reason"] == "TokenizerMismatch"
    assert "choose a draft trained with the target's tokenizer" in error["message"]
    assert weights(hubs) == []
    assert visible(volume) == []


def test_check_that_only_warns_lets_the_weights_come(hubs: dict[str, Hub], volume: Path) -> None:
    hubs["draft"].files = hub_files(**{"tokenizer.json": OTHER})

    assert judged(pair(hubs, tokenizer="Warn"), volume) == 0
    assert len(weights(hubs)) == 2


@pytest.mark.parametrize("role", ["target", "draft"])
def test_architecture_that_nothing_serves_is_refused_before_any_weights(
    role: str, hubs: dict[str, Hub], volume: Path
) -> None:
    strange = config(architectures=["MambaForCausalLM"])
    hubs[role].files = hub_files(**{"config.json": strange})

    assert judged(pair(hubs), volume) == result.PERMANENT

    assert read_result()["error"]["reason"] == "ArchitectureNotServed"
    assert weights(hubs) == []


def test_target_without_layers_for_mtp_is_refused_before_any_weights(
    hubs: dict[str, Hub], volume: Path
) -> None:
    hub = hubs["target"]
    hub.files = hub_files(**{"config.json": config(architectures=["DeepseekV3ForCausalLM"])})
    cr = pytorch("MTP")
    cr["spec"]["target"]["source"] = {
        "huggingFace": {"repo": "acme/model", "endpoint": hub.url, "tokenSecretRef": {"name": "s"}}
    }

    assert judged(cr, volume) == result.PERMANENT

    assert read_result()["error"]["reason"] == "MtpLayersMissing"
    assert weights(hubs) == []


def test_heads_of_another_method_are_refused_before_any_weights(
    hubs: dict[str, Hub], volume: Path
) -> None:
    recurrent = {"num_draft_layers": 2, "hidden_size": 8, "vocab_size": 4}
    hubs["draft"].files = hub_files(**{"config.json": recurrent})
    cr = pytorch("Eagle3")
    for place, hub in zip(
        (cr["spec"]["target"], cr["spec"]["speculation"]["eagle3"]), hubs.values(), strict=True
    ):
        field = "source" if "source" in place else "checkpoint"
        place[field] = {"huggingFace": {"repo": "acme/model", "endpoint": hub.url}}

    assert judged(cr, volume) == result.PERMANENT

    assert read_result()["error"]["reason"] == "HeadsMethodMismatch"
    assert weights(hubs) == []


def test_target_that_no_heads_of_the_method_fit_is_refused_before_any_weights(
    hubs: dict[str, Hub], volume: Path
) -> None:
    hubs["target"].files = hub_files(**{"config.json": config(architectures=["Qwen2ForCausalLM"])})
    cr = tensorrt("Medusa")
    for place, hub in zip(
        (cr["spec"]["target"], cr["spec"]["speculation"]["medusa"]), hubs.values(), strict=True
    ):
        field = "source" if "source" in place else "heads"
        place[field] = {"huggingFace": {"repo": "acme/model", "endpoint": hub.url}}

    assert judged(cr, volume) == result.PERMANENT

    assert read_result()["error"]["reason"] == "TargetArchitectureMismatch"
    assert weights(hubs) == []


def test_volume_needs_room_for_all_sources_before_any_weights(
    hubs: dict[str, Hub], volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Room for one of the two models.
    free = type("Usage", (), {"free": 100_000})()
    monkeypatch.setattr("specdec.jobs.volume.shutil.disk_usage", lambda _: free)

    assert judged(pair(hubs), volume) == result.TRANSIENT

    assert read_result()["error"]["reason"] == "VolumeFull"
    assert weights(hubs) == []


def own_claim(path: str) -> dict[str, Any]:
    cr = resource("None")
    cr["spec"]["target"]["source"] = {"pvc": {"claimName": "own", "path": path}}
    return cr


def test_source_on_the_own_claim_is_linked_and_not_copied(volume: Path) -> None:
    folder = write(volume / "mine" / "model")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    assert judged(own_claim("mine/model"), volume) == 0
    first = read_result()
    assert judged(own_claim("mine/model"), volume) == 0

    assert read_result() == first
    stored = volume / "checkpoints" / first["models"]["target"]["digest"]
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == before
    assert all(
        path.is_symlink() and not path.readlink().is_absolute() for path in stored.iterdir()
    )
    assert all((folder / name).samefile(stored / name) for name in before)


def test_removed_directory_of_the_own_claim_is_reported(volume: Path) -> None:
    folder = write(volume / "mine" / "model")
    assert judged(own_claim("mine/model"), volume) == 0
    for path in folder.iterdir():
        path.unlink()

    assert judged(own_claim("mine/model"), volume) == result.PERMANENT
    assert read_result()["error"]["reason"] == "CheckpointCorrupt"


def test_volume_without_links_gets_a_copy(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    folder = write(volume / "mine" / "model")
    monkeypatch.setattr(Path, "symlink_to", refused)

    assert judged(own_claim("mine/model"), volume) == 0

    (stored,) = [p for p in (volume / "checkpoints").iterdir() if not p.name.startswith(".")]
    assert not any(path.is_symlink() for path in stored.iterdir())
    assert (stored / "config.json").read_bytes() == (folder / "config.json").read_bytes()
