"""The Triton model of vLLM: its repository, what it reads from a request, and what it returns."""

import json
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from cluster.processes import until
from specdec.triton.vllm import VllmPlan, files
from support.payload import MODELS

sys.path.insert(0, str(MODELS / "vllm" / "1"))

from specdec_vllm import requests  # type: ignore[import-not-found]
from specdec_vllm.answers import Answer  # type: ignore[import-not-found]
from specdec_vllm.draft_counts import (  # type: ignore[import-not-found]
    FIELD,
    DraftCounts,
    Source,
)
from specdec_vllm.metrics import Copies, Exporter  # type: ignore[import-not-found]

KNOWN = ("max_tokens", "temperature", "stop", "n")


def given(**values: Any) -> dict[str, Any]:
    """Return tensors with one value each, a text as Triton gives it."""
    coded = {name: v.encode() if isinstance(v, str) else v for name, v in values.items()}
    return {
        name: np.array([v], np.object_ if isinstance(v, bytes) else None)
        for name, v in coded.items()
    }


def read(**values: Any) -> Any:
    return requests.read(given(**values), "", KNOWN)


def completion(**values: Any) -> SimpleNamespace:
    defaults = {"index": 0, "cumulative_logprob": None, "logprobs": None, "finish_reason": None}
    return SimpleNamespace(**{**defaults, **values})


def test_repository_has_the_program_and_the_published_tensors() -> None:
    arguments = json.dumps({"model": "/m", "max_model_len": 512})
    plan = VllmPlan(arguments, gpu_device_ids=((0, 1), (2, 3)), lora={"sql": "/loras/sql"})
    rendered = files(plan)
    config = text_format.Parse(rendered["vllm_model/config.pbtxt"], model_config_pb2.ModelConfig())
    inputs = {tensor.name: tensor for tensor in config.input}
    assert all(tensor.optional for tensor in inputs.values())
    assert {"text_input", "stream", "sampling_parameters", "return_logprobs"} <= set(inputs)
    assert {"total_draft_tokens", "logprobs"} <= {tensor.name for tensor in config.output}
    assert config.model_transaction_policy.decoupled
    assert config.instance_group[0].count == 2
    assert config.parameters["gpu_device_ids"].string_value == "0,1;2,3"
    assert config.parameters["max_seq_len"].string_value == "512"
    assert rendered["vllm_model/1/model.json"] == arguments
    assert json.loads(rendered["vllm_model/1/multi_lora.json"]) == {"sql": "/loras/sql"}
    assert "vllm_model/1/specdec_vllm/__init__.py" in rendered


def test_plans_can_be_kept_in_a_cache() -> None:
    assert hash(VllmPlan("{}", lora={"a": "/models/a"})) == hash(VllmPlan("{}"))


def test_prompt_precedes_whole_answers_as_published() -> None:
    assert read(text_input="a").prepend
    assert not read(text_input="a", stream=True).prepend
    assert not read(text_input="a", exclude_input_in_output=True).prepend
    assert not requests.read({"input_ids": np.array([1, 2])}, "", KNOWN).prepend


def test_parameters_of_the_request_are_used_without_the_tensor() -> None:
    parameters = '{"temperature": 0, "triton_enable_empty_final_response": true}'
    assert requests.read(given(text_input="a"), parameters, KNOWN).sampling == {"temperature": 0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "neither of text_input and input_ids"),
        ({"text_input": "a", "input_ids": 1}, "both of text_input and input_ids"),
        ({"text_input": ""}, "text_input is empty: send at least one token"),
        ({"text_input": "a", "sampling_parameters": "{"}, "is no JSON"),
        ({"text_input": "a", "sampling_parameters": "[1]"}, "is no JSON object: send an object"),
        ({"text_input": "a", "sampling_parameters": "[" * 10**5}, "is no JSON"),
        (
            {"text_input": "a", "sampling_parameters": " " * 2**22},
            "4194304 characters: send at most",
        ),
        ({"text_input": "a", "sampling_parameters": '{"n": NaN}'}, "NaN: send a finite number"),
        ({"text_input": "a", "sampling_parameters": '{"n": 1e999}'}, "send a finite number"),
        ({"text_input": "a", "sampling_parameters": f'{{"n": {2**63}}}'}, "integers of 64 bits"),
        ({"text_input": "a", "sampling_parameters": '{"lora_name": []}'}, "which is no text"),
        ({"input_ids": -1}, "input_ids has -1: send token ids"),
        (
            {"text_input": "a", "sampling_parameters": '{"beams": 2}'},
            "unknown sampling parameter beams: remove it; known are lora_name, max_tokens, n",
        ),
        (
            {"text_input": "a", "stream": True, "exclude_input_in_output": False},
            "which streams cannot have: set it to true",
        ),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(requests.RequestError, match=message):
        read(**values)


def test_responses_have_an_element_for_each_answer() -> None:
    asked = read(text_input="a", stream=True, return_finish_reason=True, return_token_ids=True)
    answer = Answer(asked, 2, 1)
    first = answer.response([completion(index=1, text="b", token_ids=[7], finish_reason="stop")])
    assert first["text_output"].tolist() == [b"", b"b"]
    assert first["output_ids"].tolist() == [7]
    second = answer.response([completion(text="c", token_ids=[8])])
    assert second["finish_reason"].tolist() == [b"None", b"stop"]
    whole = Answer(read(text_input="a"), 1, 1).response([completion(text="b", token_ids=[7])])
    assert whole["text_output"].tolist() == [b"ab"]


def test_log_probabilities_are_json() -> None:
    entry = SimpleNamespace(logprob=-0.5, rank=1, decoded_token="b")
    answer = Answer(read(text_input="a", return_logprobs=True), 1, 1)
    arrays = answer.response([completion(text="b", token_ids=[7], logprobs=[{7: entry}])])
    assert json.loads(arrays["logprobs"][0]) == [
        {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "b"}}
    ]


def test_draft_counts_are_totals_of_all_answers() -> None:
    counts = DraftCounts(Source.SCHEDULER, 2)
    counts.note(SimpleNamespace(kv_transfer_params=None))
    counts.note(SimpleNamespace(kv_transfer_params={FIELD: {"0": [4, 0, 1], "1": [8, 1, 1]}}))
    outputs = {name: array.tolist() for name, array in counts.outputs().items()}
    assert outputs == {
        "total_draft_tokens": [12],
        "total_accepted_draft_tokens": [2],
        "acceptance_histogram": [1, 2],
    }
    assert DraftCounts(Source.ZERO, 1).outputs()["acceptance_histogram"].tolist() == [0]
    assert not DraftCounts(Source.UNKNOWN, 1).outputs()


def test_vllm_own_counts_are_left_out_where_an_answer_has_none() -> None:
    metrics = SimpleNamespace(num_draft_tokens=4, histogram=[0, 1])
    counted = completion(spec_decode_metrics=metrics)
    counts = DraftCounts(Source.NATIVE, 2)
    counts.note(SimpleNamespace(outputs=[counted]))
    assert not counts.outputs()
    counts.note(SimpleNamespace(outputs=[completion(index=1, spec_decode_metrics=metrics)]))
    assert counts.outputs()["total_draft_tokens"].tolist() == [8]


@dataclass
class Metric:
    """A metric of Triton that keeps its value."""

    name: str
    labels: dict[str, str]
    value: float = 0.0
    calls: list[float] = field(default_factory=list)

    def increment(self, value: float) -> None:
        assert value > 0
        self.value += value
        self.calls.append(value)

    def set(self, value: float) -> None:
        self.value = value


def test_metrics_are_copied_when_they_change() -> None:
    made: list[Metric] = []

    def create(name: str, text: str, counts: bool, labels: dict[str, str]) -> Metric:
        made.append(Metric(name, labels))
        return made[-1]

    def sample(name: str, value: float, **labels: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, value=value, labels=labels)

    def family(name: str, kind: str, *samples: SimpleNamespace) -> SimpleNamespace:
        return SimpleNamespace(name=name, type=kind, documentation="", samples=samples)

    drafts, waiting = "vllm:spec_decode_num_drafts", "vllm:num_requests_waiting"
    counter, gauge = sample(f"{drafts}_total", 2.0, engine="0"), sample(waiting, 1.0)
    families = [
        family(drafts, "counter", counter, sample(f"{drafts}_created", 1.7e9)),
        family(waiting, "gauge", gauge),
        family("python_info", "gauge", sample("python_info", 1.0)),
    ]
    exporter = Exporter(lambda: families, create, {"model": "vllm_model"})
    exporter.copy()
    exporter.copy()
    counter.value, gauge.value = 5.0, 0.0
    exporter.copy()
    assert [metric.name for metric in made] == [f"{drafts}_total", waiting]
    assert made[0].labels == {"engine": "0", "model": "vllm_model"}
    assert made[0].calls == [2.0, 3.0]
    assert made[1].value == 0.0


def test_requests_are_counted_at_once() -> None:
    made: list[Metric] = []

    def create(name: str, text: str, counts: bool, labels: dict[str, str]) -> Metric:
        made.append(Metric(name, labels))
        return made[-1]

    copies = Copies(Exporter(list, create, {"model": "vllm_model"}), pytest.fail)
    copies.began()
    copies.began()
    assert not made
    copies.start()
    until(lambda: bool(made) and made[0].value == 2, lambda: f"{made} is not 2")
    copies.ended()
    copies.close()
    assert [(metric.name, metric.value) for metric in made] == [("specdec_requests_in_flight", 1)]
    assert made[0].labels == {"model": "vllm_model"}
