"""The support matrix is complete, and its page has the same content."""

import re

import pytest

from specdec.api.matrix import advisories, matrix, support, vulnerable_release
from specdec.api.model import Backend, Method
from specdec.triton import contract
from unit import support_reference

SERVED = [backend for backend, row in matrix().items() if row.served]


def test_the_document_is_up_to_date() -> None:
    again = "run python tests/unit/support_reference.py"
    assert support_reference.DOCUMENT.read_text() == support_reference.render(), again


@pytest.mark.parametrize("backend", SERVED)
def test_a_served_backend_has_all_it_needs(backend: Backend) -> None:
    row = support(backend)
    assert row.default_version in row.versions
    layouts = row.versions if row.one_server else contract.versions()
    assert set(row.versions) <= set(layouts)
    assert set(row.methods) <= set(Method)
    assert set(row.methods.values()) <= set(row.versions)
    assert set(row.method_architectures) <= set(row.methods)
    for models in row.method_architectures.values():
        assert set(models) <= set(row.architectures)
    known = {*row.quantization, *row.kv_cache_quantization}
    assert row.removed is None or set(row.removed.formats) <= known
    assert bool(row.deprecation) == (set(row.replacements) == set(row.methods))


def test_every_version_of_tensorrt_has_an_image_with_a_source() -> None:
    row = support("TensorRT")
    assert tuple(row.images) == tuple(row.image_sources) == row.versions
    for version, image in row.images.items():
        release = image.rpartition(":")[2][:5]
        assert f"tensorrtllm_backend, branch r{release}" in row.image_sources[version]


def test_trtllm_serve_has_the_image_that_holds_it_whole() -> None:
    """The Triton images 26.03 to 26.07 pin openai 1.107.3, which lacks PartReasoningText.

    TensorRT-LLM 1.2 imports that name (serve/responses_utils.py, which py_executor imports), so
    trtllm-serve of these images ends at its start. The release image has no such pin.
    """
    row = support("PyTorch")
    serving = {v: row.image(v, "TrtllmServe") for v in row.images}
    assert serving == {v: f"nvcr.io/nvidia/tensorrt-llm/release:{v}" for v in row.images}
    assert row.image(row.default_version) == row.images[row.default_version]
    assert row.image("9.9.9", "TrtllmServe") == ""


def test_a_release_without_tables_is_listed_with_a_reason() -> None:
    row = support("TensorRT")
    named = {v for entry in row.unserved for v in re.findall(r"\d+\.\d+\.\d+", entry.versions)}
    assert named == {"0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0"}
    assert named.isdisjoint(row.versions)
    assert all(entry.reason for entry in row.unserved)


def test_the_default_server_of_tensorrt_has_no_publicly_known_fault() -> None:
    row = support("TensorRT")
    assert vulnerable_release("TensorRT", row.images[row.default_version]) is None
    assert all(row.serves(method, row.default_version) for method in row.methods)


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("nvcr.io/nvidia/tritonserver:25.03-trtllm-python-py3", "25.03"),
        ("mirror:5000/a/tritonserver:26.06-py3@sha256:" + "0" * 64, "26.06"),
        ("tritonserver:25.12", "25.12"),
        ("tritonserver:26.07-py3", None),
        ("tritonserver:27.01-py3", None),
        # The release of these images is unknown.
        ("registry:25.03/tritonserver:ours", None),
        ("tritonserver:25.03.1-ours", None),
        ("tritonserver:1.2.1", None),
        ("tritonserver@sha256:" + "2" * 64, None),
    ],
)
def test_the_tag_of_an_image_gives_the_release_of_its_server(
    image: str, release: str | None
) -> None:
    releases = vulnerable_release("TensorRT", image)
    assert releases == ((release, "26.07") if release else None)
    # The Reference image contains Triton from a wheel, so its tag does not matter.
    assert vulnerable_release("Reference", image) == ("24.10", "26.07")


def test_advisories_come_in_the_order_of_their_fixes() -> None:
    fixed = [tuple(map(int, row.fixed.split("."))) for row in advisories()]
    assert fixed == sorted(fixed)
    assert all(row.faults and row.link.startswith("https://") for row in advisories())
