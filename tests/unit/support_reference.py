"""The support matrix as a document, written from the data the operator decides by.

`python tests/unit/support_reference.py` writes docs/support-matrix.md anew; a test holds it.
"""

from collections.abc import Iterator
from pathlib import Path

from specdec.api.matrix import Support, advisories, matrix

DOCUMENT = Path(__file__).parents[2] / "docs" / "support-matrix.md"
HEAD = """\
# What is served

Written from `operator/specdec/api/support.yaml`, which the operator and `specdec plan` decide by.
`runtime.version` is the TensorRT-LLM release, whose layout of the model repository is written.
"""


def render() -> str:
    """The whole document as Markdown."""
    lines = [HEAD]
    for backend, row in matrix().items():
        lines += [f"## {backend}", ""]
        lines += [*_backend(row), ""] if row.served else ["Not served by this release.", ""]
    return "\n".join([*lines, *_faults()])


def _faults() -> Iterator[str]:
    level = advisories()[-1].fixed
    yield "## Known faults of Triton"
    yield ""
    yield (
        "Publicly known and usable from the network, checked on 2026-11-22. A server whose image "
        f"is older than {level} is accepted with the reason `BelowFixLevel`. The release is read "
        "from an image's tag; of a tag without one, and of a digest alone, nothing is said. "
        "TensorRT-LLM has no server image after 26.07."
    )
    yield ""
    yield "| Fixed in | What | Published |"
    yield "|---|---|---|"
    for row in advisories():
        number = row.link.removesuffix(".md").rpartition("/")[2]
        kind = "bulletin" if row.link.endswith(".md") else "pull request"
        yield f"| {row.fixed} | {row.faults} | [{kind} {number}]({row.link}) |"
    yield ""


def _backend(row: Support) -> Iterator[str]:
    if row.deprecation:
        yield f"Deprecated: {row.deprecation}."
        yield ""
    yield f"| Method | {' | '.join(row.versions)} | Architectures of the target | Replaced by |"
    yield "|---|" + "---|" * (len(row.versions) + 2)
    for method in row.methods:
        able = ["yes" if row.serves(method, version) else "no" for version in row.versions]
        models = ", ".join(row.method_architectures.get(method, row.architectures))
        after = row.replacements.get(method, "")
        yield f"| `{method}` | {' | '.join(able)} | {models} | {after} |"
    yield ""
    yield f"Default version {row.default_version}; `dtype` {', '.join(row.dtypes)}."
    if row.triton:
        yield ""
        yield f"Its server is Triton {row.triton}, which is not for untrusted clients: see below."
    if not row.compute_capability:
        return
    yield ""
    yield "| Needs compute capability | at least |"
    yield "|---|---|"
    yield f"| any engine | {row.compute_capability} |"
    for name, least in row.quantization.items():
        yield f"| `quantization.method` {name} | {least} |"
    for name, least in row.kv_cache_quantization.items():
        yield f"| `quantization.kvCache` {name} | {least} |"
    if row.lost:
        yield ""
        yield (
            f"GPUs of compute capability {row.lost.since} to below {row.lost.until} have no "
            f"{', '.join(row.lost.formats)}, neither as method nor as cache."
        )
    yield ""
    yield "| Version | Default image |"
    yield "|---|---|"
    for version, image in row.images.items():
        yield f"| {version} | `{image}` |"


if __name__ == "__main__":
    DOCUMENT.write_text(render(), encoding="utf-8")
