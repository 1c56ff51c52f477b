"""The support matrix as a page, generated from the data that the operator uses.

`python tests/unit/support_reference.py` writes docs/support-matrix.md; a test compares the two.
"""

from collections.abc import Iterator
from pathlib import Path

from specdec.api.matrix import Support, advisories, matrix
from specdec.backends.methods.re_drafter import ANY_BASE

DOCUMENT = Path(__file__).parents[2] / "docs" / "support-matrix.md"
HEAD = """\
# Support matrix

This page is generated from `operator/specdec/api/support.yaml`, the data that the operator and
`specdec plan` use. `runtime.version` is a release of TensorRT-LLM. It selects the layout of the
model repository.
"""


def render() -> str:
    """Return the whole document as Markdown."""
    lines = [HEAD]
    for backend, row in matrix().items():
        lines += [f"## {backend}", ""]
        lines += [*_backend(row), ""] if row.served else ["Not served by this release.", ""]
    return "\n".join([*lines, *_faults()])


def _faults() -> Iterator[str]:
    level = advisories()[-1].fixed
    yield "## Known vulnerabilities of Triton"
    yield ""
    yield (
        "These are publicly known and usable from the network (checked on 2026-11-22). A resource "
        f"whose server image is older than {level} is accepted with the reason `BelowFixLevel`. "
        "The operator reads the release from the tag of the image. It cannot judge another tag or "
        "a digest. TensorRT-LLM has no server image after 26.07."
    )
    yield ""
    yield "| Fixed in | Vulnerabilities | Published |"
    yield "|---|---|---|"
    for row in advisories():
        number = row.link.removesuffix(".md").rpartition("/")[2]
        kind = "bulletin" if row.link.endswith(".md") else "pull request"
        yield f"| {row.fixed} | {row.faults} | [{kind} {number}]({row.link}) |"
    yield ""


def _backend(row: Support) -> Iterator[str]:
    if row.deprecation:
        yield f"Deprecated: {row.deprecation} ([announcement]({row.deprecation_link}))."
        yield ""
    versions = " | ".join(row.versions)
    yield f"| Method | {versions} | Architectures of the target | Method with PyTorch |"
    yield "|---|" + "---|" * (len(row.versions) + 2)
    for method in row.methods:
        able = ["yes" if row.serves(method, version) else "no" for version in row.versions]
        models = ", ".join(row.method_architectures.get(method, row.architectures))
        after = row.replacements.get(method, "")
        yield f"| `{method}` | {' | '.join(able)} | {models} | {after} |"
    if row.tries_others:
        yield ""
        yield (
            "These architectures are known to work. Others are tried, with the warning "
            "`ArchitectureNotServed` ([spec.checks.architecture](compatibility.md#severity))."
        )
    if "ReDrafter" in row.method_architectures:
        yield ""
        yield f"`ReDrafter` takes Qwen2ForCausalLM from release {ANY_BASE} on."
    yield ""
    yield f"Default version {row.default_version}; `dtype` {', '.join(row.dtypes)}."
    if row.candidates:
        yield ""
        yield f"Of {', '.join(row.candidates)} there are only release candidates."
    if len(row.fronts) > 1:
        names = ", ".join(f"`{name}`" for name in row.fronts)
        yield ""
        yield f"`runtime.frontend` {names}, with every method."
    if row.triton:
        yield ""
        yield (
            f"Its server is Triton {row.triton}. Allow only trusted clients to reach it: see "
            "[Known vulnerabilities](#known-vulnerabilities-of-triton)."
        )
    if row.compute_capability:
        yield from _formats(row)
    if row.images:
        yield from _images(row)


def _formats(row: Support) -> Iterator[str]:
    yield ""
    yield "| Feature | Minimum compute capability |"
    yield "|---|---|"
    yield f"| any engine | {row.compute_capability} |"
    for name, least in row.quantization.items():
        yield f"| `quantization.method` {name} | {least} |"
    for name, least in row.kv_cache_quantization.items():
        yield f"| `quantization.kvCache` {name} | {least} |"
    if row.removed:
        weights = [name for name in row.removed.formats if name in row.quantization]
        caches = [name for name in row.removed.formats if name in row.kv_cache_quantization]
        yield ""
        yield (
            f"GPUs of compute capability {row.removed.since} to below {row.removed.until} do not "
            f"support weights in {', '.join(weights)}, or caches in {', '.join(caches)}."
        )


def _images(row: Support) -> Iterator[str]:
    yield ""
    yield "| Version | Default image | Source |"
    yield "|---|---|---|"
    for version, image in row.images.items():
        yield f"| {version} | `{image}` | {row.image_sources[version]} |"
    own = [
        (version, *entry) for version, each in row.front_images.items() for entry in each.items()
    ]
    if own:
        yield ""
        yield "| Version | `runtime.frontend` | Default image |"
        yield "|---|---|---|"
        for version, frontend, image in own:
            yield f"| {version} | `{frontend}` | `{image}` |"
    if row.folders:
        yield ""
        yield (
            "A build searches for conversion scripts in "
            + " and ".join(f"`{folders.examples}`" for folders in row.folders)
            + ". Its image check searches for templates in "
            + " and ".join(f"`{folders.templates}`" for folders in row.folders)
            + ". The build Job compares the image with its release before it converts a "
            "checkpoint; [`specdec image check`](cli.md#image) makes the same comparison."
        )
    yield ""
    yield "Not served, although images exist:"
    yield ""
    for entry in row.unserved:
        yield f"- {entry.versions}: {entry.reason}."


if __name__ == "__main__":
    DOCUMENT.write_text(render(), encoding="utf-8")
