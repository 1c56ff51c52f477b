"""An image of 0.19.0 with newer templates: the BLS uses the image's input names."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from specdec.triton import contract
from specdec.triton.repository import RepositoryPlan
from support.triton_client import RefusedError, ask, text
from support.triton_server import Server
from triton.conftest import Serve

PROMPT = "def read_lines(path):\n"
# The text has many `#`: without a minimum length, the answer ends early, at the first `#`.
HASH = 3


@pytest.fixture(scope="module")
def server(serve: Serve, draft_target_plan: RepositoryPlan) -> Iterator[Server]:
    newer = contract.spellings()[1]
    plan = replace(draft_target_plan, version="0.19.0", request_fields=newer)
    with serve(plan) as running:
        yield running


def generate(server: Server, model: str, **values: object) -> str:
    given = {"text_input": PROMPT, "max_tokens": 32, "exclude_input_in_output": True, **values}
    return text(ask(server.url, model, **given))


def test_the_minimum_is_honoured_by_its_newer_name(server: Server) -> None:
    early = generate(server, "tensorrt_llm_bls", end_id=HASH)
    late = generate(server, "tensorrt_llm_bls", end_id=HASH, min_tokens=24)
    assert len(late) > len(early)
    assert late == generate(server, "ensemble", end_id=HASH, min_tokens=24)


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_the_seed_is_honoured_by_its_newer_name(server: Server, model: str) -> None:
    first, again, other = (
        generate(server, model, seed=seed, temperature=2.0, top_k=200) for seed in (5, 5, 6)
    )
    assert first == again != other


@pytest.mark.parametrize("name", ["min_length", "random_seed"])
def test_the_older_name_is_refused(server: Server, name: str) -> None:
    with pytest.raises(RefusedError, match=name):
        generate(server, "tensorrt_llm_bls", **{name: 1})
