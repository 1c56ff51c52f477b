"""The client's draft/target loop against scripted servers: rounds, logits and errors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from specdec.client.connection import Connection
from specdec.client.engine import call_seed
from specdec.client.errors import BadRequestError, RefusedError, UnreachableError
from specdec.client.speculate import Options, Result, speculate
from specdec.tools.cli.app import app
from support import bls
from unit.client.fake_pair import END, VOCABULARY, Pair, careless, counting, served

PROMPTS = ["a", "abcdef", "x", "mn"]


def run(
    url: str, prompts: list[str] = PROMPTS, draft: str | None = None, **options: Any
) -> list[Result]:
    other = None if draft is None else Connection(draft)
    return asyncio.run(speculate(prompts, Options(**options), Connection(url), other))


def test_answers_equal_the_targets_in_the_order_of_the_prompts() -> None:
    with served(Pair()) as url:
        results = run(url, max_tokens=6)
    assert [result.text for result in results] == ["bcdefg", "ghijkl", "yz", "opqrst"]
    assert [result.prompt_tokens for result in results] == [1, 6, 1, 2]
    assert results[2].tokens == (ord("y"), ord("z"), END)


def test_statistics_describe_each_round() -> None:
    with served(Pair()) as url:
        [result] = run(url, ["a"], max_tokens=7, draft_tokens=3)
    rounds = [(s.round.drafted, s.round.accepted) for s in result.steps]
    # The draft is right about the first two tokens after the prompt, and wrong about the third.
    assert rounds[0] == (3, 2)
    assert result.drafted == sum(drafted for drafted, _ in rounds)
    assert result.accepted == sum(accepted for _, accepted in rounds)
    assert sum(len(s.round.tokens) for s in result.steps) == 7


def test_separate_draft_server_has_the_default_model_name() -> None:
    target, draft = Pair(), Pair(target=careless)
    with served(target) as url, served(draft) as other:
        [result] = run(url, ["a"], other, max_tokens=6)
    assert result.text == "bcdefg"
    assert {name for name, _ in draft.seen} == {"preprocessing", "tensorrt_llm"}
    assert all("draft_input_ids" not in given for _, given in draft.seen)
    requests = [given for name, given in target.seen if name == "tensorrt_llm"]
    assert any("draft_input_ids" in given for given in requests)
    assert not any(given["exclude_input_in_output"].item() for given in requests)


def test_draft_has_a_minimum_length_and_every_call_another_seed() -> None:
    pair = Pair()
    with served(pair) as url:
        run(url, ["a"], max_tokens=9, draft_tokens=3, seed=2**64 - 1, temperature=0.5)
    drafts = [given for name, given in pair.seen if name == "tensorrt_llm_draft"]
    assert all(g["min_length"].item() == g["request_output_len"].item() for g in drafts)
    seeds = [given["random_seed"].item() for given in drafts]
    assert len(set(seeds)) == len(seeds) > 1
    assert {given["temperature"].item() for given in drafts} == {0.5}


def test_draft_is_sampled_without_constraints_where_logits_are_compared() -> None:
    pair = Pair()
    with served(pair) as url:
        run(
            url,
            ["a"],
            max_tokens=9,
            draft_tokens=3,
            min_tokens=5,
            temperature=0.5,
            use_draft_logits=True,
        )
    drafts = [given for name, given in pair.seen if name == "tensorrt_llm_draft"]
    targets = [given for name, given in pair.seen if name == "tensorrt_llm"]
    seeds = [given["random_seed"].item() for given in (*drafts, *targets)]
    assert len(set(seeds)) == len(seeds) > 2
    for given in drafts:
        minimum = given["min_length"].item() if "min_length" in given else 0
        # Either min_length covers the whole proposal, or end_id is -1, so that no token ends it.
        assert minimum >= given["request_output_len"].item() or not minimum
        assert (given["end_id"].item() == -1) == (not minimum)
    assert {bool("min_length" in given) for given in drafts} == {True, False}


def test_draft_logits_are_returned_and_passed_to_the_target() -> None:
    pair = Pair()
    with served(pair) as url:
        [result] = run(
            url,
            ["a"],
            max_tokens=5,
            draft_logits=True,
            accepted_logits=True,
            use_draft_logits=True,
        )
    for step in result.steps:
        assert step.accepted_logits is not None
        assert step.accepted_logits.argmax(-1).tolist() == list(step.round.tokens)
    passed = [given["draft_logits"] for _, given in pair.seen if "draft_logits" in given]
    assert passed
    assert passed[0].shape == (1, 4, VOCABULARY)
    first = result.steps[0].draft_logits
    assert first is not None
    assert np.array_equal(first, passed[0][0])


def test_without_drafts_only_the_target_is_called() -> None:
    pair = Pair()
    with served(pair) as url:
        assert run(url, ["a"], max_tokens=3, draft_tokens=0)[0].text == "bcd"
    assert "tensorrt_llm_draft" not in {name for name, _ in pair.seen}


@pytest.mark.parametrize(
    ("pair", "options", "message"),
    [
        (Pair(refuse="KV cache is full"), {}, "KV cache is full"),
        (Pair(hide_input=True), {}, "exclude_input_in_output to false"),
        (Pair(logits=False), {"accepted_logits": True}, "no generation logits"),
    ],
)
def test_missing_capability_of_a_server_is_reported(
    pair: Pair, options: Any, message: str
) -> None:
    with served(pair) as url:
        [result] = run(url, ["abc"], **options)
    assert isinstance(result.error, RefusedError)
    assert message in str(result.error)


def test_different_tokenizers_are_refused_unless_the_check_is_disabled() -> None:
    with served(Pair()) as url, served(Pair(target=counting, shift=1)) as other:
        [result] = run(url, ["a"], other)
        assert isinstance(result.error, BadRequestError)
        assert "tokenize a prompt differently" in str(result.error)
        assert not run(url, ["a"], other, check_vocabulary=False, max_tokens=3)[0].error


def test_input_that_the_engine_lacks_is_named() -> None:
    with served(Pair()) as url:
        [result] = run(url, ["a"], top_k=3)
    assert "no input top_k" in str(result.error)


def test_empty_prompt_does_not_affect_others() -> None:
    with served(Pair()) as url:
        empty, other = run(url, ["", "a"], max_tokens=2)
    assert "prompt is empty" in str(empty.error)
    assert other.text == "bc"


def test_failed_connection_is_reported_for_every_prompt() -> None:
    results = run("127.0.0.1:9")
    assert all(isinstance(result.error, UnreachableError) for result in results)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max tokens is 0"),
        ({"draft_tokens": -1}, "draft tokens is -1"),
        ({"beam_width": 2}, "beam width is 2"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"top_p": 2.0}, "top p is 2"),
        ({"frequency_penalty": float("nan")}, "frequency penalty is nan"),
        ({"stop_words": ("",)}, "is empty"),
        ({"bias_words": ("a",)}, "1 words and 0 weights"),
    ],
)
def test_invalid_options_are_reported_with_their_resolution(options: Any, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        Options(**options)


def test_command_prints_answers_and_totals(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"prompt": "mn", "id": 4}\n', "utf-8")
    with served(Pair()) as url:
        arguments = ["speculate", "--target", url, "--max-tokens", "4"]
        result = CliRunner().invoke(app, [*arguments, "--prompts-file", str(file)])
        as_json = CliRunner().invoke(
            app, [*arguments, "--prompt", "a", "--json", "--draft-logits"]
        )
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == ["bcde", "opqr"]
    assert "8 tokens in" in result.stderr.splitlines()[-1]
    [line] = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert line["text"] == "bcde"
    assert sum(len(entry["tokens"]) for entry in line["rounds"]) == 4
    assert len(line["rounds"][0]["draft_logits"][0]) == VOCABULARY


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "give either --prompt"),
        (["--prompt", "a", "--bias", "word"], 2, "WORD=WEIGHT"),
        (["--prompt", "a", "--header", "secret"], 2, "header 1 is no"),
        (["--prompt", "a", "--ca", "missing.pem"], 2, "add --tls"),
        (["--prompt", "a", "--tls", "--ca", "missing.pem"], 2, "missing.pem is no file"),
        (["--prompts-file", "/no/such"], 2, "cannot be read"),
        (["--prompt", "a", "--concurrency", "0"], 2, "concurrency 1 or more"),
        (["--prompt", "a", "--target", "127.0.0.1:9"], 3, "connection to 127.0.0.1:9 failed"),
        (["--prompt", "a", "--top-k", "3"], 2, "no input top_k"),
    ],
)
def test_exit_status_depends_on_the_kind_of_error(
    arguments: list[str], status: int, message: str
) -> None:
    with served(Pair()) as url:
        given = ["--target", url, *arguments]
        result = CliRunner().invoke(app, ["speculate", *given])
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("line", ["not json", '["a"]', '{"text": "a"}', '{"prompt": 4}'])
def test_invalid_line_is_reported_with_its_number(line: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "a"}}\n{line}\n', "utf-8")
    result = CliRunner().invoke(app, ["speculate", "--prompts-file", str(file)])
    assert result.exit_code == 2
    assert "line 2" in result.stderr


def test_calls_have_the_seeds_that_the_bls_gives_them() -> None:
    # A test of the BLS reads the same table.
    rows = json.loads(
        (bls.WORKSPACE / "specdec-bls" / "tests" / "data" / "call_seeds.json").read_text("ascii")
    )
    assert len(rows) > 20
    for row in rows:
        seed = call_seed(row["seed"], row["generated"], separate_draws=row["distinct"])
        assert seed == row["value"], row
