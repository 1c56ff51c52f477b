"""Each method on a real vLLM answers as vLLM without drafts, and as the Reference engine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec.images.backend.tensorrtllm.reference_engine.scheduler import (
    Scheduler,
    SchedulerLimits,
)
from support import reference_engines, vllm_heads
from support.shipped_pair import EAGLE3, PAIR
from support.vllm_generate import NEW_TOKENS, TARGET, Generated, generate
from support.vllm_tests import installed

Ids = list[int]
DRAFT_TOKENS = 4
# Drafts of the shipped EAGLE-3 heads that are accepted, by position: the rounds of the training's
# own comparison of heads and target, for answers of this length.
TRAINED = [826 / 1317, 620 / 1317, 462 / 1317]
# The prompts of methods whose drafts are random: the output alone matters.
FEW = 8
pytestmark = [pytest.mark.slow, pytest.mark.vllm(gibibytes=2)]


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Scheduler]:
    engine = reference_engines.build(PAIR / "target", tmp_path / "engine", dtype="float32")
    scheduler = Scheduler(reference_engines.open_engine(engine), SchedulerLimits())
    yield scheduler
    scheduler.close()


def _speculating(prompts: list[Ids], folder: Path, **speculation: Any) -> Generated:
    arguments = TARGET | {"speculative_config": speculation}
    return generate(installed(), arguments, prompts, NEW_TOKENS, folder)


def _check_counters(result: Generated, length: int, *, every_round: bool = True) -> None:
    """Check that vLLM's counters agree with each other and with the answers."""
    assert 0 < result.drafted <= result.drafts * length
    assert len(result.positions) == length
    assert sum(result.positions) == result.accepted
    assert result.positions == sorted(result.positions, reverse=True)
    # A round with a draft adds the accepted tokens and one more. The first token of an answer has
    # no round, and its last round may have accepted more than the answer has room for.
    answers = len(result.tokens)
    tokens = sum(map(len, result.tokens))
    assert result.drafts + result.accepted <= tokens - answers + answers * length
    if every_round:
        assert result.drafts + result.accepted >= tokens - answers


def test_plain_answers_are_those_of_the_reference_engine(
    plain: Generated, reference: Scheduler, prompts: list[Ids]
) -> None:
    calls = [reference_engines.ask(reference, prompt, NEW_TOKENS) for prompt in prompts]
    assert plain.tokens == [call.tokens() for call in calls]
    assert plain.drafted == 0


def test_draft_model_drafts_what_the_target_accepts(
    plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    result = _speculating(
        prompts,
        tmp_path,
        method="draft_model",
        model=str(PAIR / "draft"),
        num_speculative_tokens=DRAFT_TOKENS,
    )
    assert result.tokens == plain.tokens
    _check_counters(result, DRAFT_TOKENS)
    # The Reference engine accepts 58 % of the draft's tokens for these prompts.
    assert 0.5 < result.accepted / result.drafted < 0.7


def test_trained_heads_draft_what_the_target_accepts(
    plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    result = _speculating(
        prompts,
        tmp_path,
        method="eagle3",
        model=str(EAGLE3),
        num_speculative_tokens=vllm_heads.HEADS,
    )
    assert result.tokens == plain.tokens
    _check_counters(result, vllm_heads.HEADS)
    shares = [count / result.drafts for count in result.positions]
    assert shares == pytest.approx(TRAINED, abs=0.03)


def test_ngram_repeats_what_the_target_wrote(
    plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
    result = _speculating(
        prompts, tmp_path, method="ngram", num_speculative_tokens=DRAFT_TOKENS, **lookup
    )
    assert result.tokens == plain.tokens
    _check_counters(result, DRAFT_TOKENS, every_round=False)
    assert result.accepted > 0


@pytest.mark.nightly
def test_suffix_decoding_repeats_what_the_target_wrote(
    plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    result = _speculating(prompts, tmp_path, method="suffix", num_speculative_tokens=8)
    assert result.tokens == plain.tokens
    _check_counters(result, 8, every_round=False)
    assert result.accepted > 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "write"),
    [
        ("eagle", vllm_heads.eagle),
        ("eagle3", vllm_heads.eagle3),
        ("medusa", vllm_heads.medusa),
    ],
    ids=["eagle", "eagle3", "medusa"],
)
def test_random_heads_change_no_answer(
    method: str,
    write: Callable[[Path], Path],
    plain: Generated,
    prompts: list[Ids],
    tmp_path: Path,
) -> None:
    heads = str(write(tmp_path / "heads"))
    result = _speculating(
        prompts[:FEW],
        tmp_path,
        method=method,
        model=heads,
        num_speculative_tokens=vllm_heads.HEADS,
    )
    assert result.tokens == plain.tokens[:FEW]
    _check_counters(result, vllm_heads.HEADS)


@pytest.mark.nightly
def test_parallel_draft_changes_no_answer(
    plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    """The draft is not trained for PARD, so only its first token of a round is a good one."""
    result = _speculating(
        prompts[:FEW],
        tmp_path,
        method="draft_model",
        model=str(vllm_heads.pard(tmp_path / "draft")),
        num_speculative_tokens=DRAFT_TOKENS,
        parallel_drafting=True,
    )
    assert result.tokens == plain.tokens[:FEW]
    _check_counters(result, DRAFT_TOKENS)


@pytest.mark.nightly
def test_mtp_of_a_random_model_changes_no_answer(prompts: list[Ids], tmp_path: Path) -> None:
    """The weights are random, but equal in both engines: vLLM makes them from a seed."""
    arguments = {
        "model": str(vllm_heads.deepseek(tmp_path / "model")),
        "load_format": "dummy",
    }
    # vLLM has no MLA for CPUs; the same layers then use common attention.
    attention = {"VLLM_MLA_DISABLE": "1"}
    speculation = {"method": "mtp", "num_speculative_tokens": 1}
    without = generate(installed(), arguments, prompts[:FEW], 32, tmp_path, **attention)
    with_mtp = arguments | {"speculative_config": speculation}
    result = generate(installed(), with_mtp, prompts[:FEW], 32, tmp_path, **attention)
    assert result.tokens == without.tokens
    _check_counters(result, 1)
