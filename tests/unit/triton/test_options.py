"""Free parameters: only known names, whose keys no typed field of the spec sets."""

import re
from pathlib import Path

import pytest

from specdec.backends.pytorch import configuration
from specdec.triton import contract, options
from specdec.triton.parameters import engine_parameters
from specdec.triton.plan import ModelPlan, PlanError, RepositoryPlan

CRD = Path(__file__).parents[3] / "crds" / "speculativemodels.yaml"
# Parameters that releases read but that upstream's files omit.
HIDDEN = {"recv_poll_period_ms"}
# Parameters that the configuration sets to a value other than the engine's default.
DEFAULTS = {"normalize_log_probs": "false"}


def plan(version: str, *parameters: tuple[str, str]) -> RepositoryPlan:
    return RepositoryPlan(version, "/t", ModelPlan("/e"), parameters=parameters)


@pytest.mark.parametrize("version", contract.versions())
def test_a_free_name_has_its_default_in_the_table_of_its_release(version: str) -> None:
    table = dict(engine_parameters(ModelPlan("/e"), plan(version), is_target=True))
    for name in options.free(version):
        assert (name in HIDDEN) or table[name] == DEFAULTS.get(name, "")


@pytest.mark.parametrize("version", contract.versions())
def test_a_free_name_is_set_once_at_its_key(version: str) -> None:
    chosen = tuple((name, f"v-{name}") for name in options.free(version))
    before = engine_parameters(ModelPlan("/e"), plan(version), is_target=True)
    after = engine_parameters(ModelPlan("/e"), plan(version, *chosen), is_target=True)
    names = [name for name, _ in after]
    assert names[: len(before)] == [name for name, _ in before]
    assert set(names[len(before) :]) == HIDDEN
    assert dict(after).items() >= dict(chosen).items()


@pytest.mark.parametrize(
    "name", ["gpu_device_ids", "gpt_model_path", "made_up", "enable_trt_overlap"]
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match=f"has {name}, which release 0.19.0 does"):
        plan("0.19.0", (name, "1"))


def test_the_schema_takes_the_same_names() -> None:
    text = CRD.read_text(encoding="utf-8")
    rule = text[text.index("self.all(k, k in [") :]
    known = set(re.findall(r"'(\w+)'", rule[: rule.index("])")]))
    engines = {name for version in contract.versions() for name in options.free(version)}
    assert known == engines | {configuration.ADAPTERS}
