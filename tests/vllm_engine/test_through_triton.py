"""Methods on a real vLLM behind Triton answer as vLLM without drafts, and count as vLLM does."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import until
from support import vllm_heads
from support.shipped_pair import EAGLE3
from support.triton_server import Server
from support.vllm_generate import NEW_TOKENS, Generated
from support.vllm_tests import installed
from support.vllm_triton import DRAFTS, generate, repository, serving

Ids = list[int]
FEW = 12
pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=3)]
_POSITION = re.compile(
    r"^vllm:spec_decode_num_accepted_tokens_per_pos_total\{(.*)\} (\S+)$", re.MULTILINE
)


def _speculation(method: str, folder: Path) -> dict[str, Any]:
    if method == "draft_model":
        return DRAFTS
    if method == "ngram":
        lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
        return {"num_speculative_tokens": 4, **lookup}
    if method == "suffix":
        return {"num_speculative_tokens": 8}
    if method == "eagle3":
        return {"model": str(EAGLE3), "num_speculative_tokens": vllm_heads.HEADS}
    heads = {"eagle": vllm_heads.eagle, "medusa": vllm_heads.medusa}
    return {"model": str(heads[method](folder)), "num_speculative_tokens": vllm_heads.HEADS}


@pytest.fixture(
    params=[
        "draft_model",
        "eagle3",
        *(
            pytest.param(method, marks=pytest.mark.nightly)
            for method in ("ngram", "suffix", "eagle", "medusa")
        ),
    ]
)
def server(
    request: pytest.FixtureRequest, plain: Generated, tmp_path: Path
) -> Iterator[tuple[Server, int]]:
    """Yield a server of a method, and its draft length. `plain` comes first: it needs the lock."""
    speculation = {"method": request.param, **_speculation(request.param, tmp_path / "heads")}
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(installed(), repository(speculation), folder) as running:
        yield running, speculation["num_speculative_tokens"]


def _ask(server: Server, prompt: Ids) -> Any:
    sampling = {"max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    response = generate(
        server,
        input_ids=prompt,
        sampling_parameters=json.dumps(sampling),
        return_token_ids=True,
        exclude_input_in_output=True,
    )
    return response.raise_for_status().json()


def _accepted_by_position(server: Server, length: int) -> Ids:
    """Return vLLM's counters on Triton's metrics port."""
    samples = _POSITION.findall(server.get_metrics())
    counts = [0] * length
    for labels, count in samples:
        position = re.search(r'position="(\d+)"', labels)
        assert position, labels
        counts[int(position[1])] = int(float(count))
    return counts


def test_method_answers_as_without_drafts_and_counts_as_vllm(
    server: tuple[Server, int], plain: Generated, prompts: list[Ids]
) -> None:
    running, length = server
    answers = [_ask(running, prompt) for prompt in prompts[:FEW]]
    assert [answer["output_ids"] for answer in answers] == plain.tokens[:FEW]
    drafted = sum(answer["total_draft_tokens"] for answer in answers)
    accepted = sum(answer["total_accepted_draft_tokens"] for answer in answers)
    assert 0 <= accepted <= drafted
    assert drafted > 0
    # A histogram counts rounds by their number of accepted tokens.
    counted = [0] * length
    for answer in answers:
        for number, rounds in enumerate(answer["acceptance_histogram"]):
            for position in range(number):
                counted[position] += rounds
    assert sum(counted) == accepted
    # Triton's metrics follow those of vLLM within a second.
    until(
        lambda: _accepted_by_position(running, length) == counted,
        lambda: f"{_accepted_by_position(running, length)} on the page, {counted} in the answers",
        30,
    )
