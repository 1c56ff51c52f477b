"""The other versions of vLLM draft and answer as the default one does."""

from pathlib import Path

import pytest

from support import vllm_heads, vllm_wheel
from support.shipped_pair import PAIR
from support.vllm_generate import NEW_TOKENS, TARGET, Generated, generate
from support.vllm_tests import installed

Ids = list[int]
FEW = 16
OTHERS = [
    pytest.param(version, marks=pytest.mark.vllm(gibibytes=2, version=version))
    for version in vllm_wheel.VERSIONS
    if version != vllm_wheel.DEFAULT
]
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.vllm(gibibytes=2)]


@pytest.mark.parametrize("version", OTHERS)
def test_draft_model_of_another_version_answers_as_the_default_one(
    version: str, plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    draft = {
        "method": "draft_model",
        "model": str(PAIR / "draft"),
        "num_speculative_tokens": 4,
    }
    arguments = TARGET | {"speculative_config": draft}
    result = generate(installed(version), arguments, prompts[:FEW], NEW_TOKENS, tmp_path)
    assert result.tokens == plain.tokens[:FEW]
    assert 0.5 < result.accepted / result.drafted < 0.75
    assert sum(result.positions) == result.accepted


@pytest.mark.parametrize("version", OTHERS)
def test_heads_of_eagle_3_load_in_another_version(
    version: str, plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    heads = {
        "method": "eagle3",
        "model": str(vllm_heads.eagle3(tmp_path / "heads")),
        "num_speculative_tokens": vllm_heads.HEADS,
    }
    arguments = TARGET | {"speculative_config": heads}
    result = generate(installed(version), arguments, prompts[:FEW], NEW_TOKENS, tmp_path)
    assert result.tokens == plain.tokens[:FEW]
    assert result.drafted > 0
