"""Reads the alert rules and the dashboard, and extracts the parts that tests check."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from chart.helm import ROOT, Object

MONITORING = ROOT / "manifests" / "monitoring"
# Values that replace the variables of Grafana.
_VARIABLES = {"$__rate_interval": "5m", "$namespace": ".*", "$model": ".*", "$pod": ".*"}
_METRIC = re.compile(r"\b(?:specdec|nv)_\w+")
_STRING = re.compile(r'"[^"]*"')


@cache
def groups() -> list[Object]:
    """Return the groups of rules."""
    spec: Object = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    listed: list[Object] = spec["groups"]
    return listed


def rules() -> list[Object]:
    return [rule for group in groups() for rule in group["rules"]]


@cache
def dashboard() -> Any:
    return json.loads((MONITORING / "dashboard.json").read_text())


def panels() -> list[Object]:
    """Return the dashboard's panels without the titles of rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield (title, PromQL) of every rule and panel, with values for Grafana's variables."""
    for rule in rules():
        yield str(rule.get("alert") or rule["record"]), rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in _VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def metrics(expression: str) -> set[str]:
    """Return the metrics that an expression reads."""
    return set(_METRIC.findall(_STRING.sub('""', expression)))


def values(name: str) -> set[str]:
    """Return the values of a label in all expressions, such as the reasons of conditions."""
    alternatives: set[str] = set()
    for _, text in expressions():
        for value in re.findall(rf'\b{name}(?:=~|!~|!=|=)"([^"]*)"', text):
            alternatives.update(value.split("|"))
    return alternatives
