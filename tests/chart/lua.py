"""Runs Argo CD's scripts in a Lua interpreter."""

from functools import cache
from typing import Any

import yaml
from lupa import lua51

from chart.helm import ROOT, Object

ARGOCD = ROOT / "manifests" / "argocd"
KIND = "specdec.dev_SpeculativeModel"
# Argo CD allows only a part of the base library, and no files, programs or modules.
_LIBRARIES = (
    "{ipairs = ipairs, pairs = pairs, tonumber = tonumber, tostring = tostring, type = type}"
)


@cache
def customization(key: str) -> str:
    """Return the value of one of this project's keys in the ConfigMap argocd-cm."""
    text: str = yaml.safe_load((ARGOCD / "argocd-cm.yaml").read_text())["data"][
        f"resource.customizations.{key}"
    ]
    return text


def run(script: str, obj: Object) -> Any:
    """Run a script with the global `obj`; return its result as plain values."""
    runtime = lua51.LuaRuntime(unpack_returned_tuples=True)
    load = runtime.eval(
        f"function(text, obj) local env = {_LIBRARIES}; env.obj = obj; "
        "local chunk = assert(loadstring(text)); setfenv(chunk, env); return chunk() end"
    )
    return plain(load(script, runtime.table_from(obj, recursive=True)))


def plain(value: Any) -> Any:
    """Convert a Lua table to a dict, or to a list if its keys are 1, 2, 3 ..."""
    if lua51.lua_type(value) != "table":
        return value
    entries = {key: plain(item) for key, item in value.items()}
    if entries and list(entries) == list(range(1, len(entries) + 1)):
        return list(entries.values())
    return entries


def health(obj: Object, kind: str = KIND) -> tuple[str, str]:
    """Return the health that Argo CD reports for an object, and its message."""
    result = run(customization(f"health.{kind}"), obj)
    return result["status"], result["message"]


def actions(obj: Object) -> Object:
    """Return the actions that Argo CD offers for an object."""
    text = yaml.safe_load(customization(f"actions.{KIND}"))["discovery.lua"]
    offered: Object = run(text, obj)
    return offered


def act(name: str, obj: Object) -> Object:
    """Run an action of Argo CD on an object, and return the changed object."""
    known = yaml.safe_load(customization(f"actions.{KIND}"))["definitions"]
    (script,) = [item["action.lua"] for item in known if item["name"] == name]
    changed: Object = run(script, obj)
    return changed
