"""The support matrix is whole, and its document says the same."""

import pytest

from specdec.api.matrix import at_least, matrix, support
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
    assert set(row.versions) <= set(contract.versions())
    assert set(row.methods) <= set(Method)
    assert set(row.methods.values()) <= set(row.versions)
    assert set(row.method_architectures) <= set(row.methods)
    for models in row.method_architectures.values():
        assert set(models) <= set(row.architectures)
    known = {*row.quantization, *row.kv_cache_quantization}
    assert row.lost is None or set(row.lost.formats) <= known
    assert bool(row.deprecation) == (set(row.replacements) == set(row.methods))


def test_every_version_of_tensorrt_has_image_and_examples() -> None:
    row = support(Backend.TENSORRT)
    assert tuple(row.images) == tuple(row.examples) == row.versions


def test_capabilities_are_compared_by_number() -> None:
    assert at_least("10.0", "8.9")
    assert not at_least("8.6", "8.9")
    assert at_least("9.0", "9.0")
