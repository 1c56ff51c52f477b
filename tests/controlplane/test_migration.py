"""A real API server accepts the resources that `specdec migrate` prints."""

import pytest

from cluster import ControlPlane
from controlplane.specm import Resources
from support import migrations

pytestmark = pytest.mark.controlplane
EQUIVALENTS = [name for name in migrations.ENGINES if migrations.now(name).body]


def test_most_ways_to_draft_with_a_draft_model_have_an_equivalent() -> None:
    assert len(EQUIVALENTS) >= 5


@pytest.mark.parametrize("name", EQUIVALENTS)
def test_migrated_sample_is_accepted(name: str, bare: ControlPlane) -> None:
    body = migrations.now(name).body
    assert body is not None
    resources = Resources(bare.kubeconfig, "default")
    try:
        resources.create(body, dry_run=True)
    finally:
        resources.close()
