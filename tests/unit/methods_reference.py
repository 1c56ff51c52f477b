"""The page of methods and samples: a template, filled from samples, plans and the support matrix.

`python tests/unit/methods_reference.py` writes docs/methods.md; a test compares the file with it.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from specdec.api.matrix import matrix
from specdec.backends.methods.re_drafter import ANY_BASE
from specdec.tools.cli.app import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "methods.md"
TEMPLATE = Path(__file__).with_name("methods.template.md")
SAMPLES = "manifests/samples"
METHOD = re.compile(r"\{\{ method (?P<method>\w+) (?P<backend>\w+) (?P<samples>[\w -]+) \}\}")


def render() -> str:
    """Return the whole page as Markdown."""
    template = TEMPLATE.read_text("utf-8")
    page = METHOD.sub(lambda match: "\n".join(_section(**match.groupdict())), template)
    page = page.replace("{{ any_base }}", ANY_BASE)
    return page.replace("{{ overview }}", "\n".join(_overview(template)))


def samples_of(template: str) -> list[tuple[str, str]]:
    """Return each sample of the template with the anchor of its section, in order."""
    pairs = []
    for section in template.split("\n## ")[1:]:
        anchor = section.splitlines()[0].lower().replace(" ", "-")
        for match in METHOD.finditer(section):
            pairs += [(sample, anchor) for sample in match["samples"].split()]
    return pairs


@cache
def plan(sample: str) -> dict[str, Any]:
    """Return the JSON that `specdec plan` prints for a sample."""
    path = ROOT / SAMPLES / f"{sample}.yaml"
    result = CliRunner().invoke(app, ["plan", "-f", str(path), "--json"])
    assert result.exit_code == 0, result.output
    planned: dict[str, Any] = json.loads(result.stdout)
    return planned


def _overview(template: str) -> Iterator[str]:
    yield "| Sample | Method | GPUs of a replica | Server processes of a replica |"
    yield "|---|---|---|---|"
    for sample, anchor in samples_of(template):
        planned = plan(sample)
        method, processes = planned["plan"]["method"], _processes(planned["plan"])
        # The plan has the processes of the first server, the target's. The draft's server has a
        # process for each GPU.
        _, *others = planned["servers"]
        draft = f" (target) + {others[0]['gpusPerPod']} (draft)" if others else ""
        yield f"| [`{sample}`](#{anchor}) | `{method}` | {_gpus(planned)} | {processes}{draft} |"


def _gpus(planned: dict[str, Any]) -> str:
    """Return the number of GPUs of one replica of each server, as text."""
    counts = [server["gpusPerPod"] * server["podsPerReplica"] for server in planned["servers"]]
    nodes = planned["plan"]["nodesPerReplica"]
    if planned["plan"]["backend"] == "Reference":
        return f"{counts[0]} assigned, none used" if counts[0] else "none"
    return f"{counts[0]} on {nodes} nodes" if nodes > 1 else " and ".join(map(str, counts))


def _processes(planned: dict[str, Any]) -> str:
    if planned["launch"] == "Orchestrator":
        target, draft = (len(planned["participantIds"][role]) for role in ("target", "draft"))
        return f"orchestrator + {target} (target) + {draft} (draft)"
    return str(planned["worldSize"])


def _section(method: str, backend: str, samples: str) -> Iterator[str]:
    """Yield the releases and targets that serve a method, its manifests and `plan` commands."""
    row = matrix()[next(name for name in matrix() if name == backend)]
    versions = [version for version in row.versions if row.serves(method, version)]
    engine = "vLLM" if backend == "VLLM" else "TensorRT-LLM"
    yield f"- Releases of {engine}: {', '.join(versions)}"
    models = row.method_architectures.get(method, row.architectures)
    tried = "; others are tried, with a warning" if row.tries_others else ""
    yield f"- Architectures of the target: {', '.join(models)}{tried}"
    if method in row.replacements:
        yield f"- Method of the PyTorch backend that replaces it: `{row.replacements[method]}`"
    for sample in samples.split():
        path = f"{SAMPLES}/{sample}.yaml"
        yield from ("", f'```yaml title="{path}"', f'--8<-- "{path}"', "```")
    plans = [f"specdec plan -f {SAMPLES}/{sample}.yaml" for sample in samples.split()]
    yield from ("", "```sh", *plans, "```")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
