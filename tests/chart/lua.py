"""Argo CD's scripts, run by the language they are written in."""

from functools import cache
from typing import Any

import yaml
from lupa import lua51

from chart.helm import ROOT, Object

ARGOCD = ROOT / "manifests" / "argocd"
KIND = "specdec.dev_SpeculativeModel"
# Argo CD opens no more than some of the base library, and no files, programs or modules.
_LIBRARIES = (
    "{ipairs = ipairs, pairs = pairs, tonumber = tonumber, tostring = tostring, type = type}"
)


@cache
def customization(key: str) -> str:
    """A value of our part of argocd-cm."""
    text: str = yaml.safe_load((ARGOCD / "argocd-cm.yaml").read_text())["data"][
        f"resource.customizations.{key}"
    ]
    return text


def run(script: str, obj: Object) -> Any:
    """What a script returns when it is given `obj`, as plain values."""
    runtime = lua51.LuaRuntime(unpack_returned_tuples=True)
    load = runtime.eval(
        f"function(text, obj) local env = {_LIBRARIES}; env.obj = obj; "
        "local chunk = assert(loadstring(text)); setfenv(chunk, env); return chunk() end"
    )
    return plain(load(script, runtime.table_from(obj, recursive=True)))


def plain(value: Any) -> Any:
    """A table as a dict, or as a list when it counts from one."""
    if lua51.lua_type(value) != "table":
        return value
    found = {key: plain(item) for key, item in value.items()}
    if found and list(found) == list(range(1, len(found) + 1)):
        return list(found.values())
    return found


def health(obj: Object, kind: str = KIND) -> tuple[str, str]:
    """Argo CD's health of an object, and its words."""
    found = run(customization(f"health.{kind}"), obj)
    return found["status"], found["message"]


def actions(obj: Object) -> Object:
    """What Argo CD offers to do with an object."""
    text = yaml.safe_load(customization(f"actions.{KIND}"))["discovery.lua"]
    found: Object = run(text, obj)
    return found


def act(name: str, obj: Object) -> Object:
    """The object as an action leaves it."""
    known = yaml.safe_load(customization(f"actions.{KIND}"))["definitions"]
    (script,) = [one["action.lua"] for one in known if one["name"] == name]
    found: Object = run(script, obj)
    return found
