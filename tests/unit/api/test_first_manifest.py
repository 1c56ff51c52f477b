"""`specdec init`: a first manifest from the catalogue, which the operator accepts."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specdec.api.catalog import pairs
from specdec.backends.facts import Images
from specdec.tools.cli.app import app
from specdec.tools.dry_run.first_manifest import manifest
from specdec.tools.dry_run.plan import make
from specdec.tools.dry_run.resource import InputError, read

PRODUCT = "NVIDIA-H200"
# The first pair of each method that a backend serves.
CASES = {
    (backend, pair.method): pair.target
    for pair in reversed(pairs())
    for backend in pair.backends
    if next(p for p in pairs() if p.target == pair.target and backend in p.backends) == pair
}


def spec(text: str) -> dict[str, Any]:
    """Return the spec of a manifest."""
    spec_of_manifest: dict[str, Any] = yaml.safe_load(text)["spec"]
    return spec_of_manifest


@pytest.mark.parametrize(("backend", "method"), CASES)
def test_operator_accepts_the_manifest(backend: str, method: str, tmp_path: Path) -> None:
    text = manifest(CASES[backend, method], backend, PRODUCT)
    (tmp_path / "model.yaml").write_text(text)
    planned = make(read(str(tmp_path / "model.yaml")), Images("operator", "reference"))
    assert planned.refusal == ""
    assert spec(text)["speculation"]["method"] == method


def test_manifest_has_the_best_pair_and_names_the_others() -> None:
    text = manifest("meta-llama/llama-3.3-70b-instruct", "PyTorch", PRODUCT)
    heads = spec(text)["speculation"]["eagle3"]["checkpoint"]["huggingFace"]["repo"]
    assert heads == "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge"
    assert "# Eagle3: yuhuili/EAGLE3-LLaMA3.3-Instruct-70B (PyTorch, VLLM)" in text
    # The hub does not distinguish cases; its own spelling is that of the catalogue.
    assert spec(text)["target"]["source"]["huggingFace"]["repo"].startswith("meta-llama/Llama")


@pytest.mark.parametrize(
    ("target", "size"),
    [("owner/Small-8B-FP8", "20Gi"), ("owner/Two-8x7B", "150Gi"), ("owner/name", "200Gi")],
)
def test_target_without_a_pair_drafts_from_its_text(target: str, size: str) -> None:
    spec_of_manifest = spec(manifest(target, "VLLM", PRODUCT))
    assert spec_of_manifest["speculation"] == {"method": "NGram", "maxDraftTokens": 5}
    assert spec_of_manifest["storage"]["size"] == size


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["name"], "name is not a repository of the hub: name it as owner/name"),
        (["a/b\nspec: {}"], "is not a repository of the hub"),
        (["a/b", "--product", "x\ny: 1"], "is not the value of a label: copy it from a node"),
        (["a/b", "--backend", "Reference"], "--backend Reference: give TensorRT, PyTorch or VLLM"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(app, ["init", *arguments])
    assert result.exit_code == 2
    assert error in result.stderr
    if len(arguments) == 1:
        with pytest.raises(InputError):
            manifest(arguments[0], "VLLM", PRODUCT)
