"""Verification against scripted servers: equal and different answers, errors, lost connections."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specdec.client import Connection, Entry, Verification, verify
from specdec.client.errors import BadRequestError, UnreachableError
from specdec.client.verification import Options
from specdec.client.verification_result import Comparison
from specdec.tools.cli.app import app
from unit.client.fake_pair import Pair, counting, served
from unit.client.fake_service import Service

ENTRIES = [Entry("a"), Entry("mn", 6), Entry("x")]


def shouting(ids: Sequence[int]) -> int:
    """Another target model: return ! after p."""
    return ord("!") if ids[-1] == ord("p") else counting(ids)


def run(
    url: str, entries: list[Entry] = ENTRIES, others: dict[str, Any] | None = None, **options: Any
) -> Verification:
    requested = Options(**{"max_tokens": 4, **options})
    return asyncio.run(verify(entries, requested, Connection(url), **(others or {})))


@pytest.mark.parametrize("client_loop", [False, True])
@pytest.mark.parametrize("against", [None, "ensemble", "bls", "target"])
def test_equal_answers_match_for_every_baseline(against: Any, client_loop: bool) -> None:
    with served(Service()) as url:
        result = run(url, against=against, client_loop=client_loop)
    assert (result.prompts, result.matched, result.different, result.exit_status) == (3, 3, 0, 0)
    assert result.divergence is None
    exact = client_loop and against in (None, "target")
    assert result.compared == ("tokens" if exact else "text")


def test_baseline_has_no_draft_and_entries_set_their_length() -> None:
    service = Service()
    with served(service) as url:
        run(url, against="bls", draft_tokens=2)
    requested = [
        (given["text_input"].item(), given["num_draft_tokens"].item(), given["max_tokens"].item())
        for name, given in service.seen
        if name == "tensorrt_llm_bls"
    ]
    assert sorted(requested) == [
        (b"a", 0, 4), (b"a", 2, 4), (b"mn", 0, 6), (b"mn", 2, 6), (b"x", 0, 4), (b"x", 2, 4)
    ]  # fmt: skip


def test_another_model_is_verified_by_its_name() -> None:
    service = Service()
    with served(service) as url:
        result = run(url, model="ensemble")
        arguments = ["verify", "--url", url, "--model", "ensemble", "--limit", "2", "--json"]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (result.matched, result.compared) == (3, "text")
    assert {name for name, _ in service.seen} == {"ensemble"}
    with pytest.raises(BadRequestError, match="no part in the client's loop"):
        Options(model="other", client_loop=True)


def test_shares_are_those_of_the_counts_of_all_answers() -> None:
    with served(Service()) as url:
        result = run(url)
    assert (result.draft_tokens, result.accepted_tokens, result.rounds) == (18, 12, 6)
    assert result.acceptance_percent == pytest.approx(200 / 3)
    assert result.tokens_per_round == 3.0


def test_unreported_counts_are_none_and_not_zero() -> None:
    with served(Service(counts=False)) as url:
        silent = run(url)
    with served(Service(streams=False)) as url:
        unary = run(url)
    assert (silent.draft_tokens, silent.acceptance_percent, silent.rounds) == (None, None, None)
    assert (unary.draft_tokens, unary.rounds, unary.tokens_per_round) == (18, None, None)
    assert silent.matched == unary.matched == 3


def test_without_drafts_there_is_no_acceptance() -> None:
    with served(Service()) as url:
        result = run(url, draft_tokens=0)
    assert (result.draft_tokens, result.rounds) == (0, 0)
    assert (result.acceptance_percent, result.tokens_per_round) == (None, None)


def test_the_first_difference_is_shown_by_token_and_character() -> None:
    with served(Service(wrong="mn")) as url:
        result = run(url)
    assert (result.matched, result.different, result.exit_status) == (2, 1, 1)
    divergence = result.divergence
    assert divergence is not None
    assert (divergence.prompt_index, divergence.prompt) == (1, "mn")
    assert (divergence.position, divergence.character) == (5, 5)
    assert (divergence.expected_token, divergence.got_token) == (ord("t"), ord("!"))
    assert (divergence.expected_token_text, divergence.got_token_text) == ("t", "!")
    assert (divergence.expected, divergence.got) == ("opqrst", "opqrs!")


def test_another_target_as_baseline_differs_by_its_own_tokens() -> None:
    with served(Service()) as url, served(Service(target=shouting)) as other:
        result = run(url, others={"baseline": Connection(other)}, client_loop=True)
    assert result.compared == "tokens"
    assert result.different == 1
    divergence = result.divergence
    assert divergence is not None
    assert (divergence.prompt_index, divergence.position) == (1, 2)
    assert (divergence.expected_token, divergence.got_token) == (ord("!"), ord("q"))


def test_answer_that_ends_early_differs_at_its_end() -> None:
    with served(Service()) as url, served(Service(target=lambda ids: 0)) as other:
        result = run(url, [Entry("a")], {"baseline": Connection(other)})
    divergence = result.divergence
    assert divergence is not None
    assert (divergence.position, divergence.expected_token, divergence.got_token) == (
        0,
        None,
        ord("b"),
    )


def test_without_a_tokenizer_the_difference_is_shown_by_character() -> None:
    with served(Service(wrong="mn", refuse="no tokenizer")) as url:
        divergence = run(url).divergence
    assert divergence is not None
    assert (divergence.position, divergence.expected_token, divergence.character) == (
        None,
        None,
        5,
    )


def test_refused_prompt_does_not_affect_others() -> None:
    with served(Service(longest=1)) as url:
        result = run(url)
    assert (result.matched, result.exit_status) == (2, 2)
    [failure] = result.failures
    assert (failure.prompt_index, failure.kind) == (1, "refused")
    assert "prompt is too long" in failure.sentence


def test_comparisons_before_a_lost_connection_are_kept() -> None:
    seen: list[Comparison] = []
    with served(Service(stops_at=2)) as url:
        result = run(url, others={"concurrency": 1, "on_result": seen.append})
    assert (result.matched, result.exit_status) == (1, 3)
    assert [failure.kind for failure in result.failures] == ["unreachable"] * 2
    assert result.draft_tokens == 6
    assert [comparison.failure is None for comparison in seen] == [True, False, False]


@pytest.mark.parametrize(
    ("service", "options", "message"),
    [
        (Service(absent=("tensorrt_llm_bls",)), {}, "needs model tensorrt_llm_bls"),
        (Service(absent=("ensemble",)), {}, "needs model ensemble"),
        (Service(absent=("preprocessing",)), {"client_loop": True}, "model preprocessing"),
        (Service(absent=("tensorrt_llm_draft",)), {"client_loop": True}, "tensorrt_llm_draft"),
        (Service(drafts=False), {"draft_tokens": 3}, "has no input num_draft_tokens"),
        (Service(), {"max_tokens": 0}, "max tokens is 0; set it to 1 or more"),
        (Service(), {"draft_tokens": -1}, "draft tokens is -1"),
    ],
)
def test_missing_models_are_reported_before_the_first_prompt(
    service: Service, options: dict[str, Any], message: str
) -> None:
    with served(service) as url, pytest.raises(BadRequestError, match=message):
        run(url, **options)
    assert service.seen == []


def test_empty_data_set_and_failed_connection_are_reported() -> None:
    with pytest.raises(BadRequestError, match="nothing to do"):
        run("127.0.0.1:9", [])
    with pytest.raises(BadRequestError, match="select the loop"):
        run("127.0.0.1:9", others={"draft": Connection("127.0.0.1:9")})
    with pytest.raises(UnreachableError, match=r"connection to .* failed"):
        run("127.0.0.1:9")


def test_json_holds_every_attribute() -> None:
    with served(Service(wrong="mn", longest=1)) as url:
        result = json.loads(json.dumps(run(url).to_json()))
    assert set(result) == {
        "prompts", "matched", "different", "divergence", "failures", "draft_tokens",
        "accepted_tokens", "rounds", "compared", "acceptance_percent", "tokens_per_round",
            "sources",
    }  # fmt: skip
    assert set(result["failures"][0]) == {"prompt_index", "sentence", "kind"}


def command(url: str, *arguments: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["verify", "--url", url, *arguments], input=given)
    return result.exit_code, result.stdout, result.stderr


def test_command_prints_the_result(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "mn"}\n', "utf-8")
    arguments = ["--dataset", str(file), "--max-tokens", "4"]
    with served(Service(wrong="mn")) as url:
        good = command(url, *arguments, "--limit", "1")
        bad = command(url, *arguments)
        as_json = command(url, *arguments, "--json")
    assert good[0] == 0
    assert "66.7 %" in good[1]
    assert bad[0] == as_json[0] == 1
    lines = bad[1].splitlines()
    at = lines.index("prompt 2 differs at token 3, character 3 of its answer")
    assert lines[at + 1 : at + 6] == [
        "  prompt    mn",
        "  expected  opqr",
        "  got       opq!",
        "               ^",
        "  expected token 114 (r), got token 33 (!)",
    ]
    assert json.loads(as_json[1])["divergence"]["prompt"] == "mn"
    assert bad[2] == ""


def test_command_uses_the_built_in_prompts_by_default() -> None:
    with served(Service(longest=1)) as url:
        status, stdout, stderr = command(url, "--json")
    assert status == 2
    assert json.loads(stdout)["prompts"] == 100
    assert len(stderr.splitlines()) == 1
    assert stderr.startswith("specdec: prompts 1, 2, 3, 4, 5, 6, 7, 8, ...: the server at")


@pytest.mark.parametrize(
    ("service", "arguments", "given", "status", "message"),
    [
        (Service(), ["--dataset", "-"], "", 2, "--dataset - is empty; write one"),
        (Service(), ["--dataset", "-"], '{"prompt": "a"}\nno\n', 2, "line 2 is not JSON"),
        (Service(), ["--dataset", "/no/such"], None, 2, "/no/such cannot be read"),
        (Service(), ["--limit", "0"], None, 2, "--limit is 0"),
        (Service(), ["--url", "127.0.0.1:9"], None, 3, "connection to 127.0.0.1:9 failed"),
        (Service(), ["--url", "nowhere"], None, 2, "url is 'nowhere'; give host:port"),
        (Service(absent=("tensorrt_llm_bls",)), [], None, 2, "unknown model: 'tensorrt_llm_bls'"),
        (Service(drafts=False), ["--draft-tokens", "2"], None, 2, "no input num_draft_tokens"),
        (Service(refuse="tokenizer_dir is empty"), ["--client-loop"], None, 2, "is empty"),
        (Service(), ["--metrics-url", "127.0.0.1:9"], None, 3, "no metrics at 127.0.0.1:9"),
        (Service(), ["--baseline-model", "x"], None, 2, "--baseline-model needs --baseline-url"),
    ],
)
def test_command_reports_an_error_in_one_sentence_with_its_exit_status(
    service: Service, arguments: list[str], given: str | None, status: int, message: str
) -> None:
    with served(service) as url:
        code, _, stderr = command(url, *arguments, given=given)
    assert code == status
    assert message in stderr
    assert len(stderr.splitlines()) == 1
    assert "Traceback" not in stderr


def test_servers_with_two_vocabularies_are_refused_prompt_by_prompt() -> None:
    with served(Service()) as url, served(Pair(target=counting, shift=1)) as other:
        status, stdout, stderr = command(
            url, "--client-loop", "--draft-url", other, "--limit", "2", "--json"
        )
    assert status == 2
    assert "tokenize a prompt differently" in stderr
    assert [failure["kind"] for failure in json.loads(stdout)["failures"]] == ["bad_request"] * 2


def test_command_does_not_compare_a_service_with_itself() -> None:
    with served(Service()) as url:
        own = ("--baseline-url", url, "--baseline-model", "tensorrt_llm_bls")
        status, _, stderr = command(url, *own)
    assert status == 2
    assert stderr.startswith(f"specdec: baseline url {url} is the measured service itself")
    assert len(stderr.splitlines()) == 1
