"""The number of rows in an engine's call, and the delay of calls in the engine's queue."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specdec import backends
from specdec.api.model import SpeculativeModel
from specdec.backends.methods.draft_target import rows_fit
from support.simulated_cluster import IMAGES
from unit.pipeline.tensorrt import Json, built, facts, parameters, put, tensorrt

DRAFT = "speculation.draftTarget"
BLS = "tensorrt_llm_bls"


def reference() -> Json:
    """Return a resource with a draft and a target on the Reference backend."""
    return put(tensorrt(), "runtime", {"backend": "Reference", "version": "0.19.0"})


@pytest.mark.parametrize(
    ("cr", "fields", "rows", "delay"),
    [
        # The calls of a round wait in the queue, so that one step starts all of them.
        (tensorrt, {}, 1, 500),
        (tensorrt, {f"{DRAFT}.rowsPerCall": 4}, 4, 500),
        (tensorrt, {f"{DRAFT}.rowsPerCall": 16}, 16, 0),
        (reference, {}, 16, 0),
        (reference, {f"{DRAFT}.rowsPerCall": 1}, 1, 500),
        (reference, {f"{DRAFT}.draft.limits.maxBatchSize": 1}, 1, 0),
        # An engine that does not stream sends a single response for each call.
        (reference, {"serving.streaming": False}, 1, 500),
    ],
)
def test_rows_per_call_depend_on_the_backend_unless_set(
    cr: Callable[[], Json], fields: dict[str, Any], rows: int, delay: int
) -> None:
    patched = cr()
    for field, value in fields.items():
        put(patched, field, value)
    model = SpeculativeModel.parse(patched)
    backend = backends.of(model)
    given = facts(model)
    files = backend.repository(model, replace(given, engines=built(model, given)))

    assert parameters(files, BLS)["rows_per_call"] == str(rows)
    for engine in ("tensorrt_llm", "tensorrt_llm_draft"):
        line = f"max_queue_delay_microseconds: {delay}\n"
        assert line in files[f"{engine}/config.pbtxt"]
    assert "max_queue_delay_microseconds: 0\n" in files["preprocessing/config.pbtxt"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {f"{DRAFT}.rowsPerCall": 8, f"{DRAFT}.draft.limits.maxBatchSize": 4},
            "spec.speculation.draftTarget.rowsPerCall is 8, above the smaller "
            "limits.maxBatchSize of target and draft, 4: lower it, or raise maxBatchSize",
        ),
        (
            {f"{DRAFT}.rowsPerCall": 2, "serving.streaming": False},
            "spec.speculation.draftTarget.rowsPerCall is 2, but an engine takes one row a call "
            "unless it streams: set it to 1, or serving.streaming to true",
        ),
    ],
)
def test_more_rows_per_call_than_an_engine_takes_are_refused(
    fields: dict[str, Any], expected: str
) -> None:
    cr = tensorrt()
    for field, value in fields.items():
        put(cr, field, value)
    cause = rows_fit(SpeculativeModel.parse(cr), IMAGES)
    assert cause is not None
    assert cause.message == expected
