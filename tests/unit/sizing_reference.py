"""The page of sizes: public pairs on GPU products, computed by the product's own memory plan.

`python tests/unit/sizing_reference.py` writes docs/sizing.md; a test compares the two.
"""

import atexit
import copy
import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from specdec.api.gpus import products
from specdec.api.matrix import support
from specdec.api.reasons import MemoryReason
from specdec.backends.checkpoint_sizes import AUTO_BYTES, sizes_of
from specdec.backends.facts import Checkpoint
from specdec.backends.footprint import EngineSizes, Footprint, Sizes, footprint
from specdec.tools.dry_run import configuration
from specdec.tools.dry_run.plan import ResourcePlan, make
from specdec.tools.dry_run.resource import read
from support.simulated_cluster import IMAGES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sizing.md"
TEMPLATE = Path(__file__).with_name("sizing.template.md")
SAMPLES = {
    "TensorRT": "manifests/samples/tensorrt-draft-target-shared.yaml",
    "PyTorch": "manifests/samples/pytorch-draft-target.yaml",
}
# Headings of the tables' columns, by the GPU product in the node label.
COLUMNS = {
    "NVIDIA-L4": "L4",
    "NVIDIA-A10": "A10",
    "NVIDIA-L40S": "L40S",
    "NVIDIA-A100-SXM4-40GB": "A100 40GB",
    "NVIDIA-A100-SXM4-80GB": "A100 80GB",
    "NVIDIA-H100-80GB-HBM3": "H100",
    "NVIDIA-H200": "H200",
    "NVIDIA-B200": "B200",
}
# Degrees of tensor parallelism: numbers of GPUs on one node.
TENSOR = (1, 2, 4, 8)
SEQUENCE = 8192
_GIB = 1 << 30


class Pair(NamedTuple):
    """The repositories of a target and a draft, and the backend that serves their architecture."""

    target: str
    draft: str
    backend: str = "TensorRT"


PAIRS = (
    Pair("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
    Pair("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
    Pair("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    Pair("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-3B-Instruct"),
    Pair("meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    Pair("mistralai/Mistral-Large-Instruct-2407", "mistralai/Mistral-7B-Instruct-v0.3"),
    Pair("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
    Pair("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
    Pair("Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"),
    Pair("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    Pair("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "PyTorch"),
    Pair("Qwen/Qwen3-32B", "Qwen/Qwen3-1.7B", "PyTorch"),
)


@cache
def checkpoints() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("public_configurations.yaml").read_text("utf-8")
    rows: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return rows


@cache
def configurations() -> Path:
    """Return a folder with the config.json of every checkpoint, in a subfolder per repository."""
    folder = Path(tempfile.mkdtemp(prefix="specdec-sizing-"))
    atexit.register(shutil.rmtree, folder)
    for name, row in checkpoints().items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(row["config"]))
    return folder


@cache
def sizes(name: str) -> Sizes:
    """Return the sizes that the memory plan reads from a config.json."""
    facts = configuration.facts(configurations() / name / "config.json")
    result = sizes_of(Checkpoint("target", "", "", 0, facts), None)
    assert result is not None, name
    return result


@cache
def alone(name: str, body_bytes: float = AUTO_BYTES) -> Footprint:
    """Return the footprint of a model on one GPU."""
    engine = EngineSizes(
        sizes=sizes(name),
        tensor=1,
        pipeline=1,
        bytes_per_body_parameter=body_bytes,
        bytes_per_value=AUTO_BYTES,
        bytes_per_kv_element=AUTO_BYTES,
        max_batch_size=1,
        max_seq_len=SEQUENCE,
        max_num_tokens=SEQUENCE,
    )
    return footprint(engine)


# The quantization has no default: the cache would compute a call without it a second time.
@cache
def planned(
    pair: Pair, product: str, tensor: int, quantization: str, vocabulary: str = "Warn"
) -> ResourcePlan:
    """Return the plan of the sample with other sources, GPU product and parallelism."""
    body = copy.deepcopy(_sample(pair.backend))
    spec = body["spec"]
    spec["gpu"]["product"] = product
    spec["target"]["parallelism"] = {"tensor": tensor}
    spec["target"]["source"] = {"huggingFace": {"repo": pair.target}}
    spec["speculation"]["draftTarget"]["draft"]["source"] = {"huggingFace": {"repo": pair.draft}}
    if quantization != "None":
        spec["target"]["quantization"] = {"method": quantization}
    # The page is about GPUs: the volume has room for every pair.
    spec["storage"] = {"size": "10Ti"}
    # A config.json does not show whether tokenizers are equal: other vocabularies only warn.
    spec["checks"] = {"vocabulary": vocabulary}
    given = {role: configurations() / getattr(pair, role) for role in ("target", "draft")}
    return make(body, IMAGES, given)


@cache
def _sample(backend: str) -> dict[str, Any]:
    return read(str(ROOT / SAMPLES[backend]))


@cache
def fewest(pair: Pair, product: str, quantization: str) -> str:
    """Return the smallest number of GPUs that the plan accepts; `*` marks tight memory."""
    for tensor in TENSOR:
        plan = planned(pair, product, tensor, quantization)
        if not plan.refusal:
            (fits,) = [c for c in plan.status["conditions"] if c["type"] == "MemoryFits"]
            return f"{tensor}*" if fits["reason"] == MemoryReason.TIGHT_GPU_MEMORY else f"{tensor}"
    return "-"


def render() -> str:
    """Return the whole page as Markdown."""
    page = TEMPLATE.read_text("utf-8")
    parts = {"models": _models(), "pairs": _pairs(), "products": _products()}
    parts |= {"bf16": _fits("None", PAIRS)}
    parts |= {"fp8": _fits("FP8", tuple(pair for pair in PAIRS if pair.backend == "TensorRT"))}
    for name, lines in parts.items():
        page = page.replace(f"{{{{ {name} }}}}", "\n".join(lines))
    return page


def _models() -> Iterator[str]:
    yield (
        "| Checkpoint | Parameters, billion | BF16 weights, GiB | FP8 weights, GiB | "
        f"Cache of a token, KiB | Cache of {SEQUENCE} tokens, GiB |"
    )
    yield "|---|--:|--:|--:|--:|--:|"
    for name in checkpoints():
        weights = [alone(name, width).parts["Weights"] for width in (AUTO_BYTES, 1.0)]
        rate = alone(name).kv_per_token
        cells = [f"{sizes(name).parameters / 1e9:.2f}", *map(_gib, weights)]
        cells += [f"{rate / 1024:.0f}", _gib(rate * SEQUENCE)]
        yield f"| `{name}` | {' | '.join(cells)} |"


def _pairs() -> Iterator[str]:
    yield (
        "| Target | Draft | Weights, GiB | Draft's share | Cache of a token, KiB | Draft's share |"
    )
    yield "|---|---|--:|--:|--:|--:|"
    for pair in PAIRS:
        target, draft = alone(pair.target), alone(pair.draft)
        weights = target.parts["Weights"], draft.parts["Weights"]
        rates = target.kv_per_token, draft.kv_per_token
        cells = [_short(pair.target), _short(pair.draft), _gib(sum(weights))]
        cells += [_share(*weights), f"{sum(rates) / 1024:.0f}", _share(*rates)]
        yield f"| {' | '.join(cells)} |"


def _fits(quantization: str, pairs: tuple[Pair, ...]) -> Iterator[str]:
    yield f"| Target and draft | {' | '.join(COLUMNS.values())} |"
    yield "|---|" + "--:|" * len(COLUMNS)
    for pair in pairs:
        cells = [fewest(pair, product, quantization) for product in COLUMNS]
        yield f"| {_short(pair.target)} + {_short(pair.draft)} | {' | '.join(cells)} |"


def _products() -> Iterator[str]:
    least = support("TensorRT").compute_capability
    assert least is not None
    yield f"| `spec.gpu.product` | Memory, MiB | Compute capability | TensorRT needs {least} |"
    yield "|---|--:|--:|---|"
    for name, gpu in products().items():
        able = _number(gpu.compute_capability) >= _number(least)
        enough = "yes" if able else "too old"
        yield f"| `{name}` | {gpu.memory_mib} | {gpu.compute_capability} | {enough} |"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _short(name: str) -> str:
    """Return the name without its organisation and without "-Instruct"."""
    return name.partition("/")[2].replace("-Instruct", "")


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f}"


def _share(target: int, draft: int) -> str:
    return f"{100 * draft / (target + draft):.1f} %"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
