"""A generated case as documents that tests compare: with labels in place of digests.

A document is a tree of maps, lists and scalars; a `config.pbtxt` is a list of statements. `MODEL`
replaces the resource's name, so that cases with different names are comparable. A label replaces a
digest, such as `<repository:16>` for its first 16 characters. Otherwise a change of a field would
change many digests in every case.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import yaml

from support.golden_cases import HERE, Generated, resource

MODEL = "MODEL"
# Number of characters of a digest in an annotation.
_SHORT = 16
# In place of the files of a repository, which are documents too.
_ELSEWHERE = "(see repository/)"
_HEX = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{10,64}(?![0-9a-zA-Z])")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def documents(case: Generated) -> dict[str, Any]:
    """Return every document of a case by its name, which is the same in all cases."""
    mask = _mask(case)
    trees: dict[str, Any] = {}
    for body in case.objects:
        tree = _decoded(_masked(_shown(body), mask))
        name = _document(tree, case.status, body["metadata"]["name"])
        assert name not in trees, f"{case.case}: two documents {name}"
        trees[name] = tree
    for path, text in case.repository.items():
        # The mask affects only the digest of the library's sources: files have no other digest.
        lines = text.splitlines() if path.endswith(".json") else compact(text)
        trees[f"repository/{path}"] = [mask(line) for line in lines]
    trees["status"] = _masked(case.status, mask)
    return trees


def digests(case: Generated) -> dict[str, str]:
    """Return the masked digests by label; `others` combines the digests without a label."""
    seen: dict[str, str] = {}
    mask = _mask(case, seen)
    for body in (*case.objects, case.status):
        _masked(body, mask)
    named = {of: digest[:16] for digest, of in seen.items() if of != "digest"}
    others = "".join(sorted(digest for digest, of in seen.items() if of == "digest"))
    return {
        **dict(sorted(named.items())),
        "others": hashlib.sha256(others.encode()).hexdigest()[:16],
    }


def compact(text: str) -> list[str]:
    """Return Protobuf text with a line for each statement and each entry of an ensemble's maps."""
    lines: list[str] = []
    depth, parts = 0, list[str]()
    for line in text.splitlines():
        bare = _QUOTED.sub("", line)
        depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        if parts[:1] == ["ensemble_scheduling {"] or line == "ensemble_scheduling {":
            lines.append(line)
            parts = ["ensemble_scheduling {"] if depth else []
            continue
        parts.append(line.strip())
        if depth == 0:
            lines.append(" ".join(parts))
            parts = []
    assert not parts, "braces do not match"
    return lines


def _mask(case: Generated, seen: dict[str, str] | None = None) -> Callable[[str], str]:
    """Return a function that masks digests and the resource's name; `seen` collects digests."""
    status = case.status
    known = {status["repository"]["hash"]: "repository"}
    known |= {item["key"]: f"{item['role']} engine" for item in status["engines"]}
    known |= {item["source"]: f"{item['role']} source" for item in status["models"]}
    given = _given(case.case)
    name = re.compile(rf"(?<![0-9a-zA-Z]){re.escape(case.name)}(?![0-9a-zA-Z])")

    def shown(match: re.Match[str]) -> str:
        text = match[0]
        of = next((role for digest, role in known.items() if digest.startswith(text)), "digest")
        # A number of 16 digits is a digest without letters; other numbers may be sizes or times.
        is_number = text.isdigit() and of == "digest" and len(text) != _SHORT
        if text in given or len(set(text)) == 1 or is_number or text.isalpha():
            return text
        if seen is not None:
            seen[text] = of
        return f"<{of}>" if len(text) == 64 else f"<{of}:{len(text)}>"

    def mask(text: str) -> str:
        return name.sub(MODEL, _HEX.sub(shown, text))

    return mask


def _given(case: str) -> set[str]:
    """Return hexadecimal texts in the inputs of a case: the operator did not compute them."""
    text = (HERE / "checkpoints.yaml").read_text("utf-8") + yaml.safe_dump(resource(case))
    return {"0123456789ab", *_HEX.findall(text)}


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {mask(key): _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, mask) for item in value]
    return mask(value) if isinstance(value, str) else value


def _shown(body: dict[str, Any]) -> dict[str, Any]:
    """Return the object without the repository files of a ConfigMap: they are documents too."""
    if body["kind"] != "ConfigMap" or "expectations.json" not in body["data"]:
        return body
    data = {
        key: text if key == "expectations.json" else _ELSEWHERE
        for key, text in body["data"].items()
    }
    return {**body, "data": data}


def _decoded(body: dict[str, Any]) -> dict[str, Any]:
    """Return the object with parsed JSON files of a ConfigMap; check their canonical form."""
    if body["kind"] != "ConfigMap":
        return body
    data = {}
    for key, text in body["data"].items():
        if not key.endswith(".json") or text == _ELSEWHERE:
            data[key] = text
            continue
        data[key] = json.loads(text)
        canonical = json.dumps(data[key], sort_keys=True, separators=(",", ":"))
        assert canonical == text, f"{key} is not canonical"
    return {**body, "data": data}


def _document(tree: dict[str, Any], status: dict[str, Any], name: str) -> str:
    """Return kind and suffix of the name, such as `deployment`, `job-fetch` or `service-draft`."""
    for engine in status["engines"]:
        if engine["job"] == name:
            return f"{tree['kind'].lower()}-engine-{engine['role']}"
    own = re.sub(rf"^{MODEL}-?|-?<[^>]*>", "", tree["metadata"]["name"])
    return "-".join(filter(None, (tree["kind"].lower(), own)))
