"""Options, sources and the GPUs of nodes: valid values, and messages about invalid ones."""

from typing import Any

import pytest

from specdec.client.errors import BadRequestError
from specdec.tools.certify.facts import Facts, Gpus, facts, select
from specdec.tools.certify.request import CertifyRequest, heads, source
from unit.certify.bodies import H100, cpu, gpu


def test_token_of_the_hub_is_a_reference_to_a_secret() -> None:
    assert source("--target", "meta-llama/Llama-3.2-1B@abc", "hub") == {
        "huggingFace": {
            "repo": "meta-llama/Llama-3.2-1B",
            "revision": "abc",
            "tokenSecretRef": {"name": "hub"},
        }
    }


def node(product: str | None, count: int, **labels: str) -> dict[str, Any]:
    own = {"nvidia.com/gpu.product": product} if product else {}
    return {
        "metadata": {"name": "secret-host-7", "labels": {**own, **labels}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(count)} if count else {},
            "nodeInfo": {"kubeletVersion": "v1.34.1"},
        },
    }


def test_facts_count_the_gpus_of_nodes_that_take_pods() -> None:
    cordoned = node(H100, 8)
    cordoned["spec"]["unschedulable"] = True
    labels = {
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/cuda.driver.major": "590",
        "nvidia.com/cuda.driver.minor": "44",
    }
    known = facts([node(None, 0), node(H100, 1, **labels), node(H100, 2, **labels), cordoned])
    assert known == Facts(3, ("v1.34.1",), (Gpus(H100, 2, 3, 81559, "9.0", "590.44"),))
    assert "secret-host" not in str(known.as_json())


@pytest.mark.parametrize(
    ("request_", "known", "sentence"),
    [
        (
            gpu(gpu_product=None),
            Facts(1, (), ()),
            "no node of the cluster has nvidia.com/gpu; install NVIDIA's device plugin, or add "
            "--backend Reference to certify without GPUs",
        ),
        (
            gpu(gpu_product=None),
            Facts(1, (), (Gpus("", 1, 1),)),
            "the nodes with nvidia.com/gpu have no label nvidia.com/gpu.product; install GPU "
            "feature discovery, or set the label",
        ),
        (
            gpu(gpu_product=None),
            Facts(2, (), (Gpus("A", 1, 1), Gpus("B", 1, 1))),
            "the cluster has the GPUs A, B; select one with --gpu-product",
        ),
        (
            gpu(gpu_product="C"),
            Facts(2, (), (Gpus("A", 1, 1), Gpus("B", 1, 1))),
            "--gpu-product is C, which no node has; the cluster has A, B",
        ),
        (
            gpu(),
            None,
            "you may not list nodes, so the GPUs are unknown; give --gpu-product, the node label "
            "nvidia.com/gpu.product, and --gpus, the number of GPUs of a node",
        ),
    ],
)
def test_unclear_gpus_are_a_sentence(
    request_: CertifyRequest, known: Facts | None, sentence: str
) -> None:
    with pytest.raises(BadRequestError) as error:
        select(request_, known)
    assert str(error.value) == sentence


def test_gpus_are_selected_or_given() -> None:
    both = Facts(2, (), (Gpus("A", 1, 1), Gpus("B", 4, 4)))
    assert select(gpu(gpu_product="B"), both) == Gpus("B", 4, 4)
    assert select(gpu(gpu_product="B", gpus=2), None) == Gpus("B", 2, 2)
    assert select(cpu(), both) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"version": "9"}, "--version is 9; backend TensorRT serves 0.18.0, 0.19.0, 1.2.1"),
        ({"prompts": 3}, "--prompts is 3; set it to 4 to 100"),
        ({"output_tokens": 4096}, "--output-tokens is 4096; set it to 8 to 128"),
        ({"gpus": 0}, "--gpus is 0; set it to 1 to 64"),
        ({"storage_size": "big"}, "--storage-size is 'big'; write a quantity such as 60Gi"),
        (
            {"claim": "mine", "storage_size": "1Gi"},
            "--claim names an existing claim; leave out --storage-size and --storage-class",
        ),
        (
            {"target": "s3://bucket/x"},
            "--target is 's3://bucket/x'; write OWNER/REPO of the Hugging Face hub, or "
            "pvc:CLAIM/PATH",
        ),
        (
            {"draft": "pvc:claim/../etc"},
            "--draft is 'pvc:claim/../etc'; write OWNER/REPO of the Hugging Face hub, or "
            "pvc:CLAIM/PATH",
        ),
        (
            {"heads": {"Eagle": "https://x"}},
            "--heads Eagle is 'https://x'; write OWNER/REPO of the Hugging Face hub, or "
            "pvc:CLAIM/PATH",
        ),
    ],
)
def test_bad_options_are_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequestError) as error:
        gpu(**changes)
    assert str(error.value) == sentence


def test_heads_are_given_by_method() -> None:
    assert heads(["eagle=a/b", "ReDrafter=pvc:c/d"]) == {"Eagle": "a/b", "ReDrafter": "pvc:c/d"}
    for value in ("Lookahead=a/b", "Eagle", "Eagle="):
        with pytest.raises(BadRequestError, match=r"^--heads is .*; write METHOD=SOURCE with"):
            heads([value])
    with pytest.raises(BadRequestError, match="--heads names Eagle twice"):
        heads(["eagle=a/b", "Eagle=c/d"])
