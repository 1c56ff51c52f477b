"""The memory plan of backend VLLM.

Known from vLLM's sources: `get_kv_cache_configs` in vllm/v1/core/kv_cache_utils.py divides the
bytes of the cache by the sum of all layers' bytes per token. tests/vllm_engine/test_cache.py
compares it with a real vLLM on a CPU.
"""

from typing import Any

import pytest
from typing_extensions import override

from specdec.api.model import SpeculativeModel
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import Footprint
from specdec.backends.methods.definition import MethodDefinition
from specdec.backends.vllm import memory
from support.checkpoint_facts import stated
from support.simulated_cluster import resource, source
from unit.pipeline.public import checkpoint

GIB = 1 << 30
KIB = 1 << 10


class Drafting(MethodDefinition):
    @override
    def max_draft_len(self, model: SpeculativeModel) -> int:
        del model
        return 4


class WithHeads(Drafting):
    head_cache_layers = 1


def heads(**facts: Any) -> Checkpoint:
    return Checkpoint("heads", "c" * 64, "", 2 * GIB, stated(facts))


def need(
    method: MethodDefinition,
    tensor: int = 1,
    *others: Checkpoint,
    name: str = "llama-3.1-8b",
    **target: Any,
) -> Footprint:
    limits = {"maxBatchSize": 8, "maxInputLen": 4096, "maxSeqLen": 8192, "maxNumTokens": 8192}
    spec = {
        "source": source("any"),
        "limits": limits,
        "parallelism": {"tensor": tensor},
        **target,
    }
    model = SpeculativeModel.parse(resource("None", target=spec, **RUNTIME))
    checkpoints = {each.role: each for each in (checkpoint("target", "llama-3.1-8b"), *others)}
    return memory.footprints(model, checkpoints, method)["target"]


RUNTIME: dict[str, Any] = {"runtime": {"backend": "PyTorch"}}


def test_token_of_a_cache_has_all_models() -> None:
    plain = need(MethodDefinition())
    drafted = need(Drafting(), 1, checkpoint("draft", "llama-3.2-1b"))
    headed = need(WithHeads(), 1, heads(layers=1, kvHeads=8, headDim=128))

    assert plain.kv_per_token == 128 * KIB
    assert drafted.kv_per_token == (128 + 32) * KIB
    assert headed.kv_per_token == (128 + 4) * KIB


def test_heads_have_layers_of_their_own() -> None:
    wide = need(WithHeads(), 1, heads(layers=3, heads=32, kvHeads=4, headDim=256))
    assert wide.kv_per_token == 128 * KIB + 2 * 3 * 4 * 256 * 2
    # Without sizes they are one layer like the target's.
    assert need(WithHeads(), 1, heads()).kv_per_token == (128 + 4) * KIB
    # Medusa heads have no attention.
    assert need(Drafting(), 1, heads(layers=1)).kv_per_token == 128 * KIB


def test_ranks_divide_weights_and_caches() -> None:
    one, four = need(MethodDefinition()), need(MethodDefinition(), 4)

    assert one.kv_per_token == 4 * four.kv_per_token
    # vLLM divides the embedding too.
    assert one.parts["Weights"] == pytest.approx(4 * four.parts["Weights"], rel=1e-6)
    # A rank has at least one key/value head.
    assert need(MethodDefinition(), 16).kv_per_token == one.kv_per_token // 8


def test_cache_of_fp8_has_half_the_bytes() -> None:
    plain = need(MethodDefinition())
    halved = need(MethodDefinition(), quantization={"kvCache": "FP8"})
    assert 2 * halved.kv_per_token == plain.kv_per_token


def test_layers_that_predict_are_those_of_the_target() -> None:
    """DeepSeek-V3 has one such layer, with compressed keys and values as the others."""
    facts = {
        "architecture": "DeepseekV3ForCausalLM",
        "vocabSize": 129280,
        "hiddenSize": 7168,
        "intermediateSize": 18432,
        "layers": 61,
        "heads": 128,
        "cacheWidth": 576,
        "nextTokenLayers": 1,
        "parameters": 684_531_386_000,
    }
    target = Checkpoint("target", "a" * 64, "", 688 * 10**9, stated(facts))
    plain, predicted = need(Drafting(), 8, target), need(WithHeads(), 8, target)
    assert plain.kv_per_token == 61 * 576 * 2
    assert predicted.kv_per_token == 62 * 576 * 2


def test_parts_name_what_takes_memory() -> None:
    parts = need(WithHeads(), 1, heads()).parts
    assert parts["Weights"] == pytest.approx(2 * 8_030_261_248, rel=1e-3)
    assert parts["Heads"] == 2 * GIB
    assert parts["HiddenStates"] == 8192 * 3 * 4096 * 2
    assert parts["CudaGraphs"] == GIB * 3 // 2
    assert parts["Logits"] == 8 * 5 * 128256 * 20
    drafted = need(Drafting(), 1, checkpoint("draft", "llama-3.2-1b")).parts
    assert drafted["DraftWeights"] == pytest.approx(2 * 1_235_814_400, rel=1e-3)
    # The steps of target and draft take turns.
    assert drafted["Activations"] == parts["Activations"]


def test_no_graph_is_recorded_with_enforce_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"runtime": {"backend": "PyTorch", "arguments": {"enforce_eager": True}}}
    monkeypatch.setitem(RUNTIME, "runtime", own["runtime"])
    assert "CudaGraphs" not in need(MethodDefinition()).parts


@pytest.mark.parametrize(
    "broken", [{"layers": 2**62}, {"capturedLayers": 2**40}, {"headDim": 2**62}]
)
def test_nothing_is_planned_with_damaged_sizes_of_heads(broken: dict[str, int]) -> None:
    with pytest.raises(KeyError):
        need(WithHeads(), 1, heads(**broken))
