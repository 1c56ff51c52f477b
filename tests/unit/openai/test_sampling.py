"""Sampling parameters: from the body, from the checkpoint, and what servers get."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdec.images.openai import checkpoint
from specdec.images.openai.body import parse
from specdec.images.openai.checkpoint import CheckpointError
from specdec.images.openai.models import Completion
from specdec.images.openai.request import Served, task
from specdec.images.openai.sampling import GREEDY, Defaults
from specdec.images.openai.settings import EndpointSettings
from specdec.servers.llm_api.requests import REQUESTS as LLM_API
from specdec.servers.request import Request
from specdec.servers.vllm.requests import REQUESTS as VLLM
from unit.openai.fake_backend import SERVED

Json = dict[str, Any]
QWEN3 = {
    "do_sample": True,
    "temperature": 0.5,
    "top_k": 20,
    "top_p": 0.75,
    "eos_token_id": [151645, 151643],
    "repetition_penalty": 1.25,
}


def request(defaults: Defaults | None = None, served: Served = SERVED, **fields: Any) -> Request:
    body = parse(json.dumps({"model": "llama", "prompt": "x", **fields}).encode(), Completion)
    settings = EndpointSettings("llama", defaults=defaults or Defaults())
    return task(body, "x", served, settings).request


def chosen(made: Request) -> tuple[Any, ...]:
    return made.temperature, made.top_p, made.top_k, made.repetition_penalty


@pytest.mark.parametrize("fields", [{}, {"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5}])
def test_sampled_requests_without_a_seed_get_different_seeds(fields: Json) -> None:
    seeds = {request(**fields).seed for _ in range(8)}
    assert len(seeds) == 8
    assert None not in seeds
    assert request(**fields, seed=3).seed == 3


def test_vllm_draws_its_own_seeds() -> None:
    declared = replace(SERVED.declared, inputs=frozenset({"text_input", "sampling_parameters"}))
    assert request(served=replace(SERVED, requests=VLLM, declared=declared)).seed is None


@pytest.mark.parametrize("defaults", [Defaults(), Defaults.model_validate(QWEN3)])
@pytest.mark.parametrize("temperature", [0, 0.0, 1e-60])
def test_temperature_zero_is_greedy(defaults: Defaults, temperature: float) -> None:
    made = request(defaults, temperature=temperature, top_p=0.9, seed=1)
    assert not {"temperature", "top_p", "top_k", "seed"} & set(
        made.tensors(SERVED.declared.inputs)
    )


@pytest.mark.parametrize(
    ("file", "fields", "values"),
    [
        (None, {}, (1.0, 1.0, None, None)),
        (None, {"top_p": 0.9}, (1.0, 0.9, None, None)),
        (QWEN3, {}, (0.5, 0.75, 20, 1.25)),
        (QWEN3, {"temperature": 0.25, "top_k": 0}, (0.25, 0.75, 0, 1.25)),
        (QWEN3, {"repetition_penalty": 1.0, "top_p": 1.0}, (0.5, 1.0, 20, 1.0)),
        (QWEN3, {"temperature": 0}, (None, None, None, 1.25)),
        ({"top_k": -1}, {}, (1.0, 1.0, 0, None)),
        ({"temperature": None, "top_p": None}, {}, (1.0, 1.0, None, None)),
        ({"do_sample": False}, {}, (None, None, None, None)),
        ({"do_sample": False, "top_k": 50}, {"temperature": 0.5}, (0.5, None, 50, None)),
    ],
)
def test_defaults_are_those_of_the_checkpoint_and_else_openais(
    tmp_path: Path, file: Json | None, fields: Json, values: tuple[Any, ...]
) -> None:
    if file is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(file), "utf-8")
    assert chosen(request(checkpoint.defaults(tmp_path), **fields)) == values


def test_greedy_service_samples_only_with_a_temperature() -> None:
    assert chosen(request(GREEDY, top_p=0.9)) == (None, None, None, None)
    assert chosen(request(GREEDY, temperature=0.5)) == (0.5, 1.0, None, None)


def test_server_that_cannot_sample_decodes_greedily_by_default() -> None:
    declared = replace(SERVED.declared, inputs=SERVED.declared.inputs - {"temperature"})
    assert chosen(request(served=replace(SERVED, declared=declared))) == (None,) * 4


def test_default_that_the_server_lacks_is_left_out() -> None:
    inputs = {f"sampling_param_{name}" for name in ("max_tokens", "temperature", "top_p", "top_k")}
    declared = replace(SERVED.declared, inputs=frozenset({"text_input", "streaming", *inputs}))
    served = replace(SERVED, requests=LLM_API, declared=declared)
    assert chosen(request(Defaults.model_validate(QWEN3), served)) == (0.5, 0.75, 20, None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "is no JSON object"),
        ("{", "is no JSON"),
        ('{"temperature": "hot"}', "has a temperature that no server takes"),
        ('{"top_p": 1.5}', "has a top_p that no server takes"),
    ],
)
def test_unusable_generation_config_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "generation_config.json").write_text(content, "utf-8")
    with pytest.raises(CheckpointError, match=sentence) as caught:
        checkpoint.defaults(tmp_path)
    assert "generation_config.json" in str(caught.value)
