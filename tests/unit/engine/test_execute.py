"""The backend handles all requests of one `execute` call of Triton together."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.reference_engines import PAYLOAD
from unit.engine.test_kv import CONFIG

MODEL = PAYLOAD / "backend" / "tensorrtllm" / "model.py"


class Tensor:
    """A fake tensor of Triton's Python backend."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        self._array = np.asarray(array)

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._array


class Asked:
    """A fake Triton request with the given number of rows."""

    def __init__(self, rows: int, **changes: Any) -> None:
        inputs = {
            "input_ids": np.ones((rows, 3), np.int32),
            "request_output_len": np.full((rows, 1), 2, np.int32),
            **changes,
        }
        self._inputs = [Tensor(name, array) for name, array in inputs.items()]

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        return ""

    def requested_output_names(self) -> list[str]:
        return ["output_ids", "unknown"]

    def get_response_sender(self) -> object:
        return object()


class Outbox:
    """Records the answers that the model sends."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def open(self, exchange: Any) -> None:
        pass

    def send(self, answer: Any) -> None:
        self.answers.append(answer)


class Scheduler:
    """Records all calls and refuses those of three rows."""

    def __init__(self) -> None:
        self.submitted: list[list[list[Any]]] = []

    def ticket(self, request: Any, listener: Any, arrived: float) -> Any:
        return SimpleNamespace(request=request, report=listener, arrived=arrived)

    def submit(self, calls: list[list[Any]]) -> list[Any]:
        self.submitted.append(calls)
        error = sys.modules["reference_engine.errors"].RequestError
        return [error("too many") if len(call) == 3 else None for call in calls]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield the backend's model in its state between `initialize` and `finalize`."""
    utils: Any = ModuleType("triton_python_backend_utils")
    utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    utils.TritonError = lambda message, code: message
    for code in ("INVALID_ARG", "UNAVAILABLE", "INTERNAL", "CANCELLED"):
        setattr(utils.TritonError, code, code)
    utils.InferenceResponse = lambda output_tensors=(), error=None: SimpleNamespace(
        outputs=output_tensors, error=error
    )
    utils.Tensor = Tensor
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    for name in [name for name in sys.modules if name.split(".")[0] == "reference_engine"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("engine_model", MODEL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.TritonPythonModel()
    made._name = "draft"
    made._decoupled = True
    made._engine = CONFIG
    made._settings = SimpleNamespace(exclude_input=True)
    made._outputs = {"output_ids": np.int32, "sequence_length": np.int32}
    made._outbox = Outbox()
    made._scheduler = Scheduler()
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == "reference_engine"]:
        del sys.modules[name]


def test_requests_of_one_execute_are_submitted_together(model: Any) -> None:
    bad = Asked(1, input_ids=np.array([[99]], np.int32))
    model.execute([Asked(2), bad, Asked(3), Asked(1)])
    [calls] = model._scheduler.submitted
    assert [len(call) for call in calls] == [2, 3, 1]
    # Each refusal ends only its own request, and ends it once.
    answers = model._outbox.answers
    assert [answer.last for answer in answers] == [True, True]
    assert "input_ids holds 99" in answers[0].response.error
    assert answers[1].response.error == "draft: too many"
    assert len({id(answer.exchange) for answer in answers}) == 2


def test_requests_of_one_execute_arrive_together(model: Any) -> None:
    # All requests have arrived before the backend parses the first, which takes time.
    model.execute([Asked(1), Asked(2), Asked(1)])
    [calls] = model._scheduler.submitted
    assert len({ticket.arrived for call in calls for ticket in call}) == 1


def test_last_row_to_finish_ends_the_request(model: Any) -> None:
    model.execute([Asked(2)])
    [[rows]] = model._scheduler.submitted
    update = sys.modules["reference_engine.request"].Update
    for row, token in ((1, 6), (0, 7)):
        rows[row].report(update([token], [], 0.0, [], None, True, 0, 0, 1, 0, due=5.0))
    answers = model._outbox.answers
    assert [(answer.row, answer.last, answer.due) for answer in answers] == [
        (1, False, 5.0),
        (0, True, 5.0),
    ]
    outputs = [
        [(tensor.name(), tensor.as_numpy().tolist()) for tensor in answer.response.outputs]
        for answer in answers
    ]
    assert outputs == [[("output_ids", [[[6]]])], [("output_ids", [[[7]]])]]
