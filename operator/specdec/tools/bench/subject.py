"""What a report is about: the models, the GPUs and the image of the measured resource."""

from collections.abc import Iterator, Mapping
from typing import Any

from specdec.api.source import Source

Json = Mapping[str, Any]
_KINDS = frozenset(field.alias or name for name, field in Source.model_fields.items())


def subject(resource: Json) -> dict[str, str]:
    """Facts of a SpeculativeModel by their titles, in the order of the page.

    Args:
        resource: as the API server returns it; a fact that its status lacks is left out.
    """
    meta, spec = resource["metadata"], resource["spec"]
    plan = resource.get("status", {}).get("plan", {})
    facts = {"Resource": f"{meta['namespace']}/{meta['name']}"}
    facts |= dict(_sources("target", spec.get("target")))
    facts |= dict(_sources("", spec.get("speculation")))
    if plan:
        facts["Method"] = f"{plan['method']} on {plan['backend']} {plan['version']}"
        facts["GPUs of a pod"] = _gpus(plan)
        facts["Image"] = plan["image"]
    return facts


def _gpus(plan: Json) -> str:
    count = plan.get("gpusPerPod", 0)
    if not count:
        return "none, the engines run on CPUs"
    product = plan.get("gpuProduct", "of an unknown product")
    draft = f", {plan['draftGpuProduct']} for the draft" if "draftGpuProduct" in plan else ""
    return f"{count} x {product}{draft}" if count > 1 else f"{product}{draft}"


def _sources(title: str, part: Any) -> Iterator[tuple[str, str]]:
    """Each model with its source, titled by its field: Target, Draft or Heads."""
    if not isinstance(part, Mapping):
        return
    for kind, value in part.items():
        if kind in _KINDS:
            place = [text for key, text in value.items() if not key.endswith("SecretRef")]
            text = "/".join(map(str, place))
            name = "Heads" if title == "checkpoint" else title.capitalize()
            yield name, f"{text} on a claim" if kind == "pvc" else text
        else:
            yield from _sources(title if kind == "source" else kind, value)
