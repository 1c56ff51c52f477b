"""Checks the alerts and the dashboard, and that chart and manifests agree.

tests/triton/test_monitoring.py checks that a server exports every metric.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from chart.helm import CHART, ROOT, Helm, Object
from chart.monitoring import (
    MONITORING,
    dashboard,
    expressions,
    groups,
    metrics,
    panels,
    rules,
    values,
)
from chart.test_render import plain
from cluster import binaries
from cluster.progress import report
from specdec.api.conditions import PROBLEMS, PROGRESS, Type

ALERTS = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
PAGES = "https://github.com/specdec/specdec/blob/main/docs/"
ALL = {kind: {"enabled": True} for kind in ("podMonitor", "models", "rules", "dashboard")}


@pytest.fixture(scope="module")
def promtool() -> Path:
    binaries.ensure(["promtool"], report)
    return binaries.path("promtool")


def run_promtool(promtool: Path, *args: str | Path) -> None:
    """Run promtool; an error fails the test."""
    done = subprocess.run([promtool, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def written(folder: Path, rule_groups: list[Object]) -> Path:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rule_groups}))
    return file


def test_every_expression_is_promql_and_passes_lint(promtool: Path, tmp_path: Path) -> None:
    shown = [
        {"record": f"panel:{number}", "expr": text}
        for number, (_, text) in enumerate(expressions())
    ]
    assert len(shown) > 30
    file = written(tmp_path, [*groups(), {"name": "panels", "rules": shown}])
    run_promtool(promtool, "check", "rules", "--lint=all", "--lint-fatal", file)


def linked() -> Object:
    """Return the alert cases, with the runbook link of each alert."""
    links = {
        rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules() if "alert" in rule
    }
    cases: Object = json.loads(json.dumps(ALERTS))
    for test in cases["tests"]:
        for case in test["alert_rule_test"]:
            for alert in case["exp_alerts"]:
                alert["exp_annotations"]["runbook_url"] = links[case["alertname"]]
    return cases


def test_alerts_fire_and_stay_silent(promtool: Path, tmp_path: Path) -> None:
    written(tmp_path, groups())
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump({**linked(), "rule_files": ["rules.yaml"]}))
    run_promtool(promtool, "test", "rules", tests)


def test_wrong_threshold_fails_the_alert_tests(promtool: Path, tmp_path: Path) -> None:
    """The alert tests can fail: with a wrong threshold, an alert fires when it must not."""
    changed = json.loads(json.dumps(groups()).replace("< 1.3", "< 9.9"))
    assert changed != groups()
    written(tmp_path, changed)
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump({**ALERTS, "rule_files": ["rules.yaml"]}))
    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, check=False)
    assert done.returncode != 0


def test_every_alert_has_a_firing_and_a_silent_case() -> None:
    cases = [case for test in ALERTS["tests"] for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules() if "alert" in rule])
def test_alert_links_to_its_page(alert: str) -> None:
    (rule,) = [rule for rule in rules() if rule.get("alert") == alert]
    page, _, anchor = rule["annotations"]["runbook_url"].removeprefix(PAGES).partition("#")
    text = (ROOT / "docs" / page).read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert anchor in {"", *(heading.lower().replace(" ", "-") for heading in headings)}


def test_rules_use_only_existing_conditions_and_reasons() -> None:
    assert values("type") <= {str(kind) for kind in Type}
    # Reasons in capitals are Triton's reasons of failed requests.
    named = {reason for reason in values("reason") if reason[:1].isupper()}
    reasons = {reason for reason in named if not reason.isupper()}
    assert len(reasons) > 6
    assert reasons <= PROBLEMS | PROGRESS


def test_dashboard_panels_are_complete_and_do_not_overlap() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & own, panel["title"]
        cells |= own
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "$datasource"
        for target in panel["targets"]:
            assert metrics(target["expr"]), panel["title"]
            # A panel about models applies the selected models.
            if "model_name" in target["expr"]:
                assert target["expr"].count("{model_namespace") >= 1, panel["title"]
            # A panel about servers also applies the selected pods.
            servers = re.findall(
                r"\b(?:nv_|specdec_)(?!model_|reconcile|api_|queue)\w+{[^}]*}", target["expr"]
            )
            assert all('pod=~"$pod"' in selected for selected in servers), panel["title"]


# Panel -> the value of each model, in test_summary_and_quantiles_show_a_value_for_each_model.
SHOWN: dict[str, dict[str, float]] = {
    "Speed": {"lab/a": 1.52},
    "Acceptance": {"lab/a": 0.5},
    "Output": {"lab/a": 1, "lab/b": -1, "lab/c": 0, "other/b": 1},
    "Speculation": {"lab/a": 1, "lab/b": 0, "lab/c": -1},
    "Time to first piece": {"a": 0.5},
    "Time of an answer": {"a": 5},
}


def test_summary_and_quantiles_show_a_value_for_each_model(promtool: Path, tmp_path: Path) -> None:
    """The query engine of Prometheus evaluates the queries of the panels."""

    def series(name: str, values: str, **labels: str) -> Object:
        text = ", ".join(f'{key}="{value}"' for key, value in labels.items())
        return {"series": f"{name}{{{text}}}", "values": values}

    def of(model: str) -> dict[str, str]:
        return {"model_namespace": "lab", "model_name": model, "pod": f"{model}-0"}

    given = [
        series("specdec_model_speed_ratio", "1.52+0x10", **of("a")),
        series("specdec_draft_tokens_total", "0+60x10", **of("a")),
        series("specdec_accepted_tokens_total", "0+30x10", **of("a")),
    ]
    for kind, states in (
        ("OutputEquivalent", ("True", "False", "Unknown")),
        ("SpeculationActive", ("True", "Unknown", "False")),
    ):
        for model, state in zip("abc", states, strict=True):
            labels = {**of(model), "type": kind, "status": state, "reason": "Any"}
            given.append(series("specdec_model_condition", "1+0x10", **labels))
    for name, limit in (("first_piece", "1"), ("request", "10")):
        for bound in (limit, "+Inf"):
            bucket = f"specdec_openai_{name}_seconds_bucket"
            given.append(series(bucket, "0+60x10", **of("a"), le=bound))
    # A model in another namespace can have the same name.
    other = {**of("b"), "model_namespace": "other"}
    equal = {"type": "OutputEquivalent", "status": "True", "reason": "Any"}
    given.append(series("specdec_model_condition", "1+0x10", **other, **equal))

    def labels_of(shown: str) -> str:
        namespace, _, model = shown.rpartition("/")
        name = f'model_name="{model}"'
        return f'{{model_namespace="{namespace}", {name}}}' if namespace else f"{{{name}}}"

    asked_ = [
        {
            "expr": dict(expressions())[title].replace("0.99", "0.5"),
            "eval_time": "10m",
            "exp_samples": [
                {"labels": labels_of(shown), "value": value} for shown, value in models.items()
            ],
        }
        for title, models in SHOWN.items()
    ]
    tests = tmp_path / "tests.yaml"
    case = {"interval": "1m", "input_series": given, "promql_expr_test": asked_}
    tests.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    run_promtool(promtool, "test", "rules", tests)


def test_first_row_shows_whether_speculation_pays() -> None:
    row, *first = dashboard()["panels"][:5]
    assert row["title"] == "Summary"
    assert [panel["title"] for panel in first] == ["Speed", "Acceptance", "Output", "Speculation"]
    assert {panel["gridPos"]["y"] for panel in first} == {1}
    assert {variable["name"] for variable in dashboard()["templating"]["list"]} == {
        *("datasource", "namespace", "model", "pod")
    }


def test_chart_renders_the_monitoring_manifests(helm: Helm) -> None:
    argv = [str(binaries.path("kubectl")), "kustomize", str(MONITORING)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    expected = plain(list(yaml.safe_load_all(done.stdout)))
    rendered = plain(helm.template({"metrics": ALL}))
    assert len(expected) == 4
    for key, body in expected.items():
        assert rendered[key] == body, key


def test_documented_values_enable_all_monitoring(helm: Helm) -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    (values_,) = re.findall(r"```yaml\n# monitoring.yaml\n(.*?)```", text, re.DOTALL)
    rendered = [body["kind"] for body in helm.template(yaml.safe_load(values_))]
    assert [rendered.count(kind) for kind in ("PodMonitor", "PrometheusRule", "ConfigMap")] == [
        2,
        1,
        1,
    ]


def test_chart_copies_equal_the_monitoring_manifests() -> None:
    for name in ("rules.yaml", "dashboard.json"):
        copy = (CHART / "files" / name).read_bytes()
        assert copy == (MONITORING / name).read_bytes(), "make chart copies them"
