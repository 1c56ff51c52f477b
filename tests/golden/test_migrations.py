"""Every TensorRT sample has a reviewed PyTorch equivalent, or reviewed needs."""

import pytest

from golden import migrated
from golden.delta import apply
from support import migrations
from support.documents import load


def test_migrations_are_the_reviewed_ones() -> None:
    hint = "if this is intended, run `make golden`, review the diff and commit it"
    assert migrated.text() == migrated.MIGRATIONS.read_text("utf-8"), hint


@pytest.mark.parametrize("name", sorted(migrations.ENGINES))
def test_file_makes_the_resource_again(name: str) -> None:
    entry = load(migrated.MIGRATIONS.read_text("utf-8"))[name]
    body = migrations.now(name).body
    if body is None:
        assert entry.keys() == {"needs"}
    else:
        assert apply(migrations.sample(name), entry["delta"]) == body
