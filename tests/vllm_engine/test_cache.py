"""The cache of a real vLLM has the tokens that the memory plan counts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.vllm import memory
from specdec.tools.dry_run import configuration
from support import vllm_heads
from support.shipped_pair import PAIR
from support.simulated_cluster import resource, source
from support.vllm_generate import SMALL, TARGET, generate
from support.vllm_tests import installed

# vLLM's blocks on a CPU; those on GPUs have 16 tokens.
BLOCK = 128
pytestmark = [pytest.mark.slow, pytest.mark.vllm(gibibytes=2)]


class Drafting(MethodDefinition):
    head_cache_layers = 1


def planned_bytes(folders: dict[str, Path]) -> int:
    """Return the bytes of a token in the plan of a pair on one GPU with FP32 values."""
    target = {"source": source("any"), "dtype": "Float32"}
    model = SpeculativeModel.parse(
        resource("None", target=target, runtime={"backend": "TensorRT"})
    )
    checkpoints = {
        role: Checkpoint(role, "a" * 64, "", 1, configuration.facts(folder))
        for role, folder in folders.items()
    }
    return memory.footprints(model, checkpoints, Drafting())["target"].kv_per_token


def draft(folder: Path) -> Path:
    del folder
    return PAIR / "draft"


@pytest.mark.parametrize(
    ("role", "method", "write"),
    [
        ("", "", None),
        ("draft", "draft_model", draft),
        ("heads", "eagle3", vllm_heads.eagle3),
    ],
    ids=["plain", "draft", "eagle3"],
)
def test_cache_has_the_planned_tokens(
    role: str, method: str, write: Callable[[Path], Path] | None, tmp_path: Path
) -> None:
    folders = {"target": PAIR / "target"}
    arguments: dict[str, Any] = dict(TARGET)
    if write is not None:
        folders[role] = write(tmp_path / "drafts")
        arguments["speculative_config"] = {
            "method": method,
            "model": str(folders[role]),
            "num_speculative_tokens": 2,
        }

    result = generate(installed(), arguments, [[1, 2, 3]], 4, tmp_path)

    assert result.block_tokens == BLOCK
    available = SMALL["kv_cache_memory_bytes"]
    assert isinstance(available, int)
    assert result.blocks == available // (BLOCK * planned_bytes(folders))
