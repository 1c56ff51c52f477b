"""Rules that depend on the backend come from tables, and stand in the definition alone."""

from typing import Any

import pytest

from specdec.api.matrix import matrix
from specdec.api.model import SpeculativeModel
from specdec.backends.definition_rules import features, rules, tables
from specdec.pipeline import validation
from specdec.pipeline.validation import cel, definition
from specdec.tools.dry_run.admission import decoding
from specdec.tools.dry_run.admission.definition import definition as carried
from support import crd_cases
from support.backend_rules import written
from support.crd_cases import Case
from support.documents import CRD
from support.simulated_cluster import IMAGES

# Rules in Python judge what these resources break too: methods of a version, GPUs with the needed
# compute capability, and ranks for a spec of which the layout can make none.
OTHERS = ("UnsupportedMethod", "UnsupportedGpu", "InvalidDevices")


# Rules of a method refuse these, with the remedy of a rule of the tables.
_OF_METHODS = ("redrafter-over-pipeline", "target-without-reuse")
OF_TABLES = [
    case
    for case in crd_cases.bad()
    if case.name not in _OF_METHODS
    and any(case.field == f"spec.{r.field}" and case.message in r.message for r in rules())
]


def parsed(case: Case) -> SpeculativeModel:
    body = case.resource()
    body["metadata"] |= {"namespace": "default", "uid": "0"}
    return SpeculativeModel.parse(body)


def test_the_definition_has_the_backends_and_rules_of_the_tables() -> None:
    text = CRD.read_text("utf-8")
    assert written(text) == text, "run make generate"


def test_a_change_between_the_marks_is_written_over() -> None:
    text = CRD.read_text("utf-8")
    changed = text.replace("enum: [TensorRT, ", "enum: [Other, ").replace(
        "only backend PyTorch has runtime.arguments", "every backend has runtime.arguments"
    )
    assert changed != text
    assert written(changed) == text


def test_tables_name_only_features_that_exist_and_each_once() -> None:
    for backend, own in tables().items():
        named = [*own.has, *own.lacks]
        assert set(named) <= features().keys(), backend
        assert len(named) == len(set(named)), backend


def test_each_feature_is_one_that_some_backend_has_and_another_lacks() -> None:
    for name in features():
        able = [backend for backend, own in tables().items() if name in own.has]
        assert 0 < len(able) < len(matrix()), name


@pytest.mark.parametrize("case", crd_cases.good(), ids=lambda case: case.name)
def test_the_spec_is_evaluated_as_the_api_server_stores_it(case: Case) -> None:
    spec = carried().schema["properties"]["spec"]
    stored: Any = definition.stored(parsed(case).spec)
    assert stored == decoding.decoded(case.resource()["spec"], spec)


@pytest.mark.parametrize("case", crd_cases.good(), ids=lambda case: case.name)
def test_a_good_resource_breaks_no_rule(case: Case) -> None:
    assert definition.problem(parsed(case), IMAGES) is None


@pytest.mark.parametrize("case", OF_TABLES, ids=lambda case: case.name)
def test_the_accept_stage_refuses_what_the_api_server_refuses(case: Case) -> None:
    cause = validation.first_problem(parsed(case), IMAGES)
    assert cause is not None
    assert cause.message.startswith(f"{case.field}: ")
    assert case.message in cause.message


def test_a_rule_that_cannot_be_evaluated_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    row = rules()[0]
    monkeypatch.setattr(definition, "_parsed", lambda: ((row, cel.parse("self.missing == 1")),))
    # Verdicts are remembered, also this one.
    monkeypatch.setattr(definition, "_problem", definition._problem.__wrapped__)
    (case, *_) = crd_cases.good()
    cause = definition.problem(parsed(case), IMAGES)
    assert cause is not None
    assert row.message in cause.message


def test_no_rule_of_a_table_is_repeated_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [rule.message for rule in rules()]
    cases = [case for case in crd_cases.bad() if any(case.message in text for text in messages)]
    models = {case.name: parsed(case) for case in cases if not case.after}
    broken = {name: model for name, model in models.items() if definition.problem(model, IMAGES)}
    assert len(broken) > len(rules()) / 2
    monkeypatch.setattr(validation.definition, "problem", lambda model, images: None)
    again = {name: validation.first_problem(own, IMAGES) for name, own in broken.items()}
    assert {n: c.message for n, c in again.items() if c and c.reason not in OTHERS} == {}
