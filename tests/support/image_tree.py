"""Fake trees of TensorRT-LLM images: templates, build programs and metadata, written from tables.

Templates come from the published layouts (`published_layouts`), flags from
`tests/unit/build/flag_tables.json`. As upstream, the programs define their flags literally, except
that `trtllm-build` gets some flags from a helper in another module, which has a list of names.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.published_layouts import table

FLAG_TABLES = Path(__file__).parents[1] / "unit" / "build" / "flag_tables.json"
MODELS = ("ensemble", "preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_bls")
# Scripts of a release: the path of each script, and the flag table that lists its flags.
_COMMON = {
    "eagle/convert_checkpoint.py": "convert-eagle",
    "medusa/convert_checkpoint.py": "convert-medusa",
    "quantization/quantize.py": "quantize",
}
_MOVED = {
    "models/core/llama/convert_checkpoint.py": "convert",
    "models/core/qwen/convert_checkpoint.py": "convert",
}
SCRIPTS = {
    "0.18.0": {
        **_COMMON,
        "llama/convert_checkpoint.py": "convert",
        "qwen/convert_checkpoint.py": "convert",
        "redrafter/convert_checkpoint.py": "convert-redrafter",
    },
    "0.19.0": {**_COMMON, **_MOVED, "redrafter/convert_checkpoint.py": "convert-redrafter"},
    "1.2.1": {**_COMMON, **_MOVED, "redrafter/convert_checkpoint.py": "convert-redrafter-1"},
}
# Placeholders of data types, by tensor.
_PLACEHOLDERS = {
    "encoder_input_features": "${encoder_input_features_data_type}",
    "prompt_embedding_table": "${prompt_embedding_table_data_type}",
}
RENAMES = {"min_length": "min_tokens", "random_seed": "seed"}


@dataclass(frozen=True)
class Release:
    """An image: its tag, the installed TensorRT-LLM, and the paths of its folders and packages."""

    tag: str
    version: str
    packages: str
    app: str = "app"
    templates: str = "app/all_models/inflight_batcher_llm"
    renamed: bool = False
    openai: str = "1.109.1"


# The image 25.05 has newer names of request fields than the tag 0.19.0 of its TensorRT-LLM.
RELEASES = (
    Release("25.03", "0.18.0", "usr/local/lib/python3.12/dist-packages"),
    Release("0.19.0", "0.19.0", "usr/local/lib/python3.12/dist-packages"),
    Release("25.05", "0.19.0", "usr/local/lib/python3.12/dist-packages", renamed=True),
    # Triton's build installs the requirements of its own OpenAI front end last.
    Release(
        "26.07",
        "1.2.1",
        "opt/venv-tritonserver/lib/python3.12/site-packages",
        openai="1.107.3",
    ),
    Release(
        "release-image",
        "1.2.1",
        "usr/local/lib/python3.12/dist-packages",
        "app/tensorrt_llm",
        "app/tensorrt_llm/triton_backend/all_models/inflight_batcher_llm",
    ),
)


def write(root: Path, release: Release) -> Path:
    """Write an image's tree; return its root."""
    for model in MODELS:
        text = template(model, release.version, renamed=release.renamed)
        _file(root / release.templates / model / "config.pbtxt", text)
    for place, program in SCRIPTS[release.version].items():
        _file(root / release.app / "examples" / place, script(program))
    package(root / release.packages, release.version)
    openai(root / release.packages, release.openai)
    return root


def copied(folder: Path) -> Path:
    """Write the copy of packages that pods have; return its folder."""
    openai(folder, "1.109.1")
    return folder


def openai(folder: Path, version: str) -> None:
    """Write the part of openai that TensorRT-LLM imports.

    `PartReasoningText` came with 1.108.1, as a comparison of the released wheels shows.
    """
    info = folder / f"openai-{version}.dist-info"
    _file(info / "METADATA", f"Metadata-Version: 2.1\nName: openai\nVersion: {version}\n")
    names = ["PartOutputText", "PartRefusal"]
    if tuple(map(int, version.split("."))) >= (1, 108, 1):
        names.append("PartReasoningText")
    for package in ("openai", "openai/types", "openai/types/responses"):
        _file(folder / package / "__init__.py", "")
    text = "\n\n".join(f"class {name}:\n    pass\n" for name in names)
    _file(folder / "openai/types/responses/response_content_part_added_event.py", text)


def template(model: str, version: str, *, renamed: bool = False) -> str:
    """Return a `config.pbtxt` with placeholders, in the loose protobuf text of published files."""
    published = table(version)
    lines = [
        '# A comment, and a name in it: "tensorrt"',
        f'name: "{model}"',
        "max_batch_size: ${triton_max_batch_size}",
        "dynamic_batching {",
        "  preferred_batch_size: [ ${triton_max_batch_size} ]",
        "  default_queue_policy: { max_queue_size: ${max_queue_size} }",
        "}",
    ]
    for side, field in (("in", "input"), ("out", "output")):
        rows = published[f"{model} {side}"]
        tensors = [_tensor(name, row, renamed) for row in rows for name in row[3:]]
        lines += [f"{field} [", ",\n".join(tensors), "]"]
    keys = [
        key for kind, *names in published.get(f"{model} key", []) if kind == "key" for key in names
    ]
    lines += [
        f'parameters{"" if number % 2 else ":"} {{\n  key: "{key}"\n'
        f'  value: {{\n    string_value: "${{{key}}}"\n  }}\n}}'
        for number, key in enumerate(keys)
    ]
    return "\n".join(lines) + "\n"


def _tensor(name: str, row: list[str], renamed: bool) -> str:
    kind, dims, flags = row[:3]
    data_type = "${logits_datatype}" if kind == "LOGITS" else f"TYPE_{kind}"
    data_type = _PLACEHOLDERS.get(name, data_type)
    fields = [
        f'name: "{RENAMES.get(name, name) if renamed else name}",',
        f"data_type: {data_type},",
        f"dims: {dims}",
        *(["reshape: { shape: [ ] }"] if "r" in flags else []),
        *(["optional: true"] if "o" in flags else []),
        *(["allow_ragged_batch: true"] if "g" in flags else []),
    ]
    return "  {\n\t" + "\n\t".join(fields) + "\n  }"


def script(program: str) -> str:
    """Return the source of a script, which defines its flags and does nothing."""
    return "\n".join(
        [
            "import argparse",
            "import tensorrt_llm",
            "",
            "",
            "def parse_arguments():",
            "    parser = argparse.ArgumentParser()",
            *(f"    {line}" for line in _definitions("parser", flags(program))),
            "    return parser.parse_args()",
            "",
        ]
    )


def package(folder: Path, version: str) -> None:
    """Write a TensorRT-LLM package: metadata, and modules that define flags of `trtllm-build`."""
    info = folder / f"tensorrt_llm-{version}.dist-info"
    _file(info / "METADATA", f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n")
    entries = [f"trtllm-{name} = tensorrt_llm.commands.{name}:main" for name in ("build", "serve")]
    _file(info / "entry_points.txt", "\n".join(["[console_scripts]", *entries, ""]))
    table_ = flags("trtllm-build")
    helped = {name for name in table_ if name.endswith(("_plugin", "fmha", "padding", "profiles"))}
    literal = {name: kind for name, kind in table_.items() if name not in helped}
    _file(
        folder / "tensorrt_llm/commands/build.py",
        "\n".join(
            [
                "import argparse",
                "from tensorrt_llm.plugin import PluginConfig, add_plugin_argument",
                "",
                "",
                "def parse_arguments():",
                "    parser = argparse.ArgumentParser()",
                '    group = parser.add_argument_group("Options")',
                *(f"    {line}" for line in _definitions("group", literal)),
                "    plugins = parser.add_argument_group('Plugins')",
                "    add_plugin_argument(plugins)",
                "    return parser",
                "",
            ]
        ),
    )
    imports = _imports(version)
    for name, text in imports.items():
        _file(folder / "tensorrt_llm" / name, text)
    nothing = "raise ImportError('the check imports nothing')\n"
    _file(folder / "tensorrt_llm/__init__.py", f"from .llmapi import LLM\n\n{nothing}")
    _file(
        folder / "tensorrt_llm/plugin/__init__.py",
        "from .plugin import PluginConfig, add_plugin_argument\n",
    )
    _file(
        folder / "tensorrt_llm/plugin/plugin.py",
        f"exposed = {sorted(helped)!r}\n\n\n"
        "class PluginConfig:\n    pass\n\n\n"
        "def add_plugin_argument(parser):\n"
        "    for name, field in PluginConfig.model_fields.items():\n"
        "        if name in exposed:\n"
        '            parser.add_argument("--" + name, type=str, choices=list(field.values))\n',
    )


def _imports(version: str) -> dict[str, str]:
    """Return modules that lead from the package to openai, as those of TensorRT-LLM 1.2 do.

    Older releases import no name of openai that 1.107.3 lacks.
    """
    part = "PartReasoningText" if version.startswith("1.2.") else "PartRefusal"
    event = "openai.types.responses.response_content_part_added_event"
    executor = "tensorrt_llm._torch.pyexecutor.py_executor"
    return {
        "llmapi/__init__.py": "from .llm import LLM\n",
        "llmapi/llm.py": f"from {executor} import PyExecutor\n\n\nclass LLM:\n    pass\n",
        "llmapi/llm_utils.py": "",
        "executor/__init__.py": "",
        "executor/worker.py": f"from {executor} import PyExecutor\n",
        "_torch/__init__.py": "",
        "_torch/pyexecutor/__init__.py": "",
        "_torch/pyexecutor/py_executor.py": (
            "from tensorrt_llm.serve.responses_utils import get_steady_clock_now_in_seconds\n\n"
            "try:\n    from cuda.bindings import runtime\nexcept ImportError:\n"
            "    from cuda import cudart\n\n\nclass PyExecutor:\n    pass\n"
        ),
        "serve/__init__.py": "",
        "serve/responses_utils.py": (
            f"from {event} import {part}\n\n\n"
            "def get_steady_clock_now_in_seconds():\n    return 0.0\n"
        ),
        "commands/__init__.py": "",
        "commands/serve.py": "from tensorrt_llm import LLM\n\n\ndef main():\n    pass\n",
    }


@cache
def _flag_tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(FLAG_TABLES.read_text("utf-8"))
    return tables


def flags(program: str) -> dict[str, Any]:
    """Return the flags of a program, by name."""
    return dict(_flag_tables()[program])


def _definitions(parser: str, table_: dict[str, Any]) -> Iterator[str]:
    for name, kind in table_.items():
        options = []
        if kind.get("type") == "switch":
            options.append('action="store_true"')
        elif kind.get("type") == "int":
            options.append("type=int")
        if "choices" in kind:
            options.append(f"choices={kind['choices']!r}")
        if kind.get("required"):
            options.append("required=True")
        yield f"{parser}.add_argument({', '.join([repr('--' + name), *options])})"


def _file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def distribution(folder: Path, name: str, version: str) -> None:
    """Write an installed package, which has nothing but its version."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
