"""The recycler empties only volumes whose claim is deleted, and makes them available again."""

from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from cluster import recycler
from cluster.api import Api
from cluster.errors import RefusedError


class FakeApi(Api):
    """Answers each GET with one volume, and records or refuses each patch."""

    def __init__(self, live: dict[str, Any], refusal: int = 0) -> None:
        self.live = live
        self.refusal = refusal
        self.patches: list[Any] = []

    @override
    def call(self, method: str, path: str, body: Any = None, content: str = "") -> dict[str, Any]:
        if method == "GET":
            return self.live
        if self.refusal:
            raise RefusedError("no", self.refusal)
        self.patches.append(body)
        return {}


def volume(phase: str, version: str = "7") -> dict[str, Any]:
    return {
        "metadata": {"name": "pv-01", "resourceVersion": version},
        "spec": {"hostPath": {"path": "/"}},
        "status": {"phase": phase},
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    inner = tmp_path / "volumes" / "pv-01" / "engines"
    inner.mkdir(parents=True)
    (inner / "rank0.engine").write_text("weights")
    (tmp_path / "volumes" / "pv-01" / "link").symlink_to(tmp_path)
    (tmp_path / "kept").write_text("kept")
    return inner


def test_released_volume_is_emptied_and_made_available(tmp_path: Path, data: Path) -> None:
    api = FakeApi(volume("Released", "8"))
    assert recycler.recycle(api, volume("Released"), tmp_path)
    assert list((tmp_path / "volumes" / "pv-01").iterdir()) == []
    assert (tmp_path / "kept").exists()
    ((test, removal),) = api.patches
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "8"}
    assert removal == {"op": "remove", "path": "/spec/claimRef"}


@pytest.mark.parametrize("phase", ["Bound", "Available", "Pending", "Failed"])
def test_volume_that_is_not_released_is_kept(tmp_path: Path, data: Path, phase: str) -> None:
    api = FakeApi(volume("Released"))
    assert not recycler.recycle(api, volume(phase), tmp_path)
    assert data.exists()


def test_old_event_does_not_empty_a_volume_that_is_bound_again(tmp_path: Path, data: Path) -> None:
    api = FakeApi(volume("Bound", "9"))
    assert not recycler.recycle(api, volume("Released"), tmp_path)
    assert data.exists()
    assert api.patches == []


def test_conflicting_change_is_ignored_and_other_refusals_raise(
    tmp_path: Path, data: Path
) -> None:
    assert not recycler.recycle(FakeApi(volume("Released"), 422), volume("Released"), tmp_path)
    with pytest.raises(RefusedError):
        recycler.recycle(FakeApi(volume("Released"), 403), volume("Released"), tmp_path)
