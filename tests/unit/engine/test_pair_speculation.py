"""The shipped pair gives the same text in fewer steps, with a draft and with lookahead."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from specdec.images.backend.tensorrtllm.reference_engine.config import Lookahead
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.sampling import Sampling
from support.reference_engines import PAYLOAD, ask, build, open_engine, rounds
from unit.engine.conftest import Start

PAIR = PAYLOAD / "pair"
NEW = 48


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Llama]:
    root: Path = tmp_path_factory.mktemp("pair")
    return {role: open_engine(build(PAIR / role, root / role)) for role in ("target", "draft")}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    lines = (PAIR / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [tokenizer.encode(json.loads(line)["prompt"]).ids for line in lines[:16]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules", [Sampling(), Sampling(top_p=0.9, temperature=0.7, seed=5)], ids=["greedy", "sampled"]
)
def test_rounds_of_every_length_give_the_plain_text(
    rules: Sampling, pair: dict[str, Llama], prompts: list[list[int]], start: Start
) -> None:
    target, draft = start(pair["target"]), start(pair["draft"])
    plain = [ask(target, prompt, NEW, rules=rules).tokens() for prompt in prompts]

    def speculate(index: int) -> tuple[list[int], int, int]:
        return rounds(target, draft, prompts[index], NEW, 1 + index % 8, rules=rules)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(speculate, range(len(prompts))))
    assert [tokens for tokens, _, _ in results] == plain
    drafted = sum(result[1] for result in results)
    assert sum(result[2] for result in results) > 0.1 * drafted


@pytest.mark.slow
def test_lookahead_gives_the_plain_text_in_fewer_steps(
    pair: dict[str, Llama], prompts: list[list[int]], start: Start
) -> None:
    plain, drafting = start(pair["target"]), start(pair["target"], Lookahead(5, 4, 5))
    calls = [ask(drafting, prompt, NEW) for prompt in prompts]
    assert [call.tokens() for call in calls] == [
        ask(plain, prompt, NEW).tokens() for prompt in prompts
    ]
    steps = sum(call.wait().steps for call in calls)
    assert sum(len(call.tokens()) for call in calls) > 1.1 * steps
