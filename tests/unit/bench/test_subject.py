"""The facts about the measured resource at the top of a report page."""

from typing import Any

import pytest
import yaml

from specdec.tools.bench.html import as_html
from specdec.tools.bench.subject import subject
from support.golden_cases import SAMPLES
from unit.bench.fixed import report


def sample(name: str, **plan: Any) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load(SAMPLES[name].read_text("utf-8"))
    body["metadata"]["namespace"] = "lab"
    method = {"backend": "TensorRT", "version": "1.2.1", "method": "DraftTarget", "image": "i:1"}
    return {**body, "status": {"plan": {**method, **plan}}}


def test_models_gpus_and_image_are_those_of_the_resource() -> None:
    body = sample("tensorrt-draft-target-shared", gpusPerPod=4, gpuProduct="NVIDIA-H100")
    assert subject(body) == {
        "Resource": "lab/tensorrt-draft-target-shared",
        "Target": "meta-llama/Llama-3.1-70B-Instruct",
        "Draft": "meta-llama/Llama-3.2-1B-Instruct",
        "Method": "DraftTarget on TensorRT 1.2.1",
        "GPUs of a pod": "4 x NVIDIA-H100",
        "Image": "i:1",
    }


def test_heads_claims_and_cpus_are_named() -> None:
    assert "Heads" in subject(sample("tensorrt-eagle"))
    facts = subject(sample("reference-draft-target", gpusPerPod=0))
    assert facts["Target"] == "reference-pair/target on a claim"
    assert facts["GPUs of a pod"] == "none, the engines run on CPUs"


def test_secrets_and_missing_status_are_left_out() -> None:
    body = sample("tensorrt-fp8-one-gpu")
    del body["status"]
    facts = subject(body)
    assert list(facts)[-1] == "Draft"
    assert "hugging-face" not in str(facts.values())


@pytest.mark.slow
def test_page_begins_with_the_facts() -> None:
    text = as_html(report(subject={"Target": "large", "Image": "<i>"}))
    start = text[: text.index("<ul>")]
    assert "<dd>large</dd>" in start
    assert "&lt;i&gt;" in start
    assert "2026-01-02T03:04:05Z" in start
    assert "tensorrt_llm_bls at localhost:8001" in as_html(report())


def test_the_other_product_of_a_draft_is_named() -> None:
    body = sample("tensorrt-two-servers", gpusPerPod=4, gpuProduct="NVIDIA-H100")
    body["status"]["plan"]["draftGpuProduct"] = "NVIDIA-L4"
    assert subject(body)["GPUs of a pod"] == "4 x NVIDIA-H100, NVIDIA-L4 for the draft"
