"""No code compares the name of a backend, kind of server, method or Triton model with another.

Only its own package may. A few places read names that others have written.
"""

from pathlib import Path

import pytest

from unit.name_comparisons import hits

# By file: why it compares.
ALLOWED = {
    "api/speculation.py": "the enum's own property of method None",
    "client/http_transport.py": "the platform of an ensemble, which has that name",
    "client/verification.py": "a value of --against",
    "images/backend/tensorrtllm/llm_api_engine/generation.py": "decoding types of TensorRT-LLM",
    "images/backend/tensorrtllm/llm_api_engine/settings.py": "decoding types of TensorRT-LLM",
    "images/build/build_engine.py": "its text is in the key of every engine",
    "images/build/image_check.py": "it runs in the image of a server, without this package",
    "images/build/image_imports.py": "the name of TensorRT-LLM's Python package",
    "servers/openai_api.py": "the owner of a model, as servers with OpenAI's API list it",
}


def test_only_own_packages_compare_names() -> None:
    unexpected = [str(hit) for hit in hits() if hit.path not in ALLOWED]
    assert not unexpected, "\n".join(unexpected)


def test_allowed_files_still_compare_names() -> None:
    assert {hit.path for hit in hits()} >= set(ALLOWED), "remove the others from ALLOWED"


@pytest.mark.parametrize(
    "text",
    [
        'if model.backend == "PyTorch": pass',
        'if name in ("ensemble", other): pass',
        "if method is Method.EAGLE: pass",
        'match kind:\n    case "llm_api": pass',
        '_NAME = "Medusa"\nif method != _NAME: pass',
        "from specdec.triton.model_names import BLS as MODEL\nif model == MODEL: pass",
        'run = {"TensorRT": 1}[backend]',
    ],
)
def test_the_search_finds_literals_attributes_and_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text, "utf-8")
    assert len(hits(tmp_path)) == 1


def test_own_packages_may_compare(tmp_path: Path) -> None:
    own = tmp_path / "backends" / "pytorch"
    own.mkdir(parents=True)
    (own / "module.py").write_text('if name == "PyTorch": pass', "utf-8")
    assert hits(tmp_path) == []
