"""Images of every release pass the check, and each drift of an image has a clear message."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import image_main
import pytest

from specdec.api.matrix import support
from specdec.backends.tensorrt.image import MODES, expectations
from specdec.triton import contract
from support.image_tree import RELEASES, Release, copied, write

NEWEST = next(release for release in RELEASES if release.tag == "26.07")
TEMPLATES = NEWEST.templates
LLM = f"{TEMPLATES}/tensorrt_llm/config.pbtxt"
ENSEMBLE = f"{TEMPLATES}/ensemble/config.pbtxt"
EAGLE = "app/examples/eagle/convert_checkpoint.py"
QUANTIZE = "app/examples/quantization/quantize.py"
BUILD = f"{NEWEST.packages}/tensorrt_llm/commands/build.py"
PLUGINS = f"{NEWEST.packages}/tensorrt_llm/plugin/plugin.py"
INFO = f"{NEWEST.packages}/tensorrt_llm-1.2.1.dist-info"
IMAGE = support("TensorRT").images["1.2.1"]
FIX = f": set spec.runtime.image to an image of 1.2.1 such as {IMAGE}"

TYPED = 'name: "temperature",\n\tdata_type: TYPE_FP32'

Capture = Any


def checked(root: Path, *options: str) -> list[str]:
    """Return the arguments of a check with the copy of packages that pods have."""
    return [str(root), "--packages", str(copied(root.with_name(f"{root.name}-copy"))), *options]


def report(root: Path, version: str, capsys: Capture) -> dict[str, Any]:
    """Return the JSON report of a check with the copy that pods have; `status` is its status."""
    status = image_main.main(checked(root, "--json"), json.dumps(expectations(version)))
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**result, "status": status}


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.tag)
def test_the_images_of_every_release_fit(
    release: Release, tmp_path: Path, capsys: Capture
) -> None:
    result = report(write(tmp_path, release), release.version, capsys)
    assert result["differences"] == []
    assert (result["status"], result["version"]) == (0, release.version)
    assert (result["templates"], result["flags"] > 60) == (5, True)


def test_every_served_release_has_a_fake_image() -> None:
    assert {release.version for release in RELEASES} == set(support("TensorRT").versions)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.tag)
def test_an_image_decides_the_names_of_request_fields(
    release: Release, tmp_path: Path, capsys: Capture
) -> None:
    result = report(write(tmp_path, release), release.version, capsys)
    older, newer = contract.spellings()
    fields = newer if release.tag in ("25.05", "26.07", "release-image") else older
    assert result["requestFields"] == {"minTokens": fields.min_tokens, "seed": fields.seed}


def replaced(path: str, old: str, new: str) -> Callable[[Path], None]:
    """Return a drift that replaces a text in a file."""

    def drift(root: Path) -> None:
        text = (root / path).read_text("utf-8")
        assert old in text
        (root / path).write_text(text.replace(old, new, 1), "utf-8")

    return drift


def removed(path: str) -> Callable[[Path], None]:
    """Return a drift that removes a file or a folder."""

    def drift(root: Path) -> None:
        if (root / path).is_dir():
            shutil.rmtree(root / path)
        else:
            (root / path).unlink()

    return drift


def flag(name: str) -> str:
    """Return the beginning of a flag's definition."""
    return f"add_argument('--{name}'"


DRIFTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "renamed input": (
        replaced(LLM, 'name: "runtime_top_k"', 'name: "sampling_top_k"'),
        "input runtime_top_k of tensorrt_llm is missing in the image",
    ),
    "removed output": (
        replaced(LLM, 'name: "sequence_length"', 'name: "lengths"'),
        "output sequence_length of tensorrt_llm is missing in the image",
    ),
    "removed request field": (
        replaced(LLM, 'name: "min_tokens"', 'name: "minimum"'),
        "input min_length or min_tokens of tensorrt_llm is missing in the image",
    ),
    "other type": (
        replaced(
            LLM,
            TYPED,
            TYPED.replace("FP32", "FP16"),
        ),
        "input temperature of tensorrt_llm is TYPE_FP16 in the image and TYPE_FP32 in specdec",
    ),
    "mandatory input": (
        replaced(
            LLM, "input [\n", 'input [\n  { name: "tenant" data_type: TYPE_STRING dims: [ 1 ] },\n'
        ),
        "input tenant of tensorrt_llm is mandatory in the image and not in specdec",
    ),
    "missing parameter": (
        replaced(LLM, 'key: "gpt_model_path"', 'key: "max_beam_width"'),
        "parameter gpt_model_path of tensorrt_llm is set by specdec and missing in the image",
    ),
    "missing parameter of a method": (
        replaced(LLM, 'key: "eagle_choices"', 'key: "max_beam_width"'),
        "parameter eagle_choices of tensorrt_llm is set by specdec and missing in the image",
    ),
    "unknown parameter": (
        replaced(
            LLM,
            "parameters:",
            'parameters { key: "new_scheduler" value { string_value: "" } }\nparameters:',
        ),
        "parameter new_scheduler of tensorrt_llm is unknown to specdec",
    ),
    "names of two releases": (
        replaced(LLM, 'name: "seed"', 'name: "random_seed"'),
        "tensorrt_llm has min_tokens beside random_seed, names of different releases",
    ),
    "templates of two releases": (
        replaced(ENSEMBLE, 'name: "min_tokens"', 'name: "min_length"'),
        "one template has min_length where tensorrt_llm has min_tokens",
    ),
    "no templates": (
        removed("app/all_models"),
        "it has no templates in /app/all_models/inflight_batcher_llm or "
        "/app/tensorrt_llm/triton_backend/all_models/inflight_batcher_llm",
    ),
    "missing template": (
        removed(f"{TEMPLATES}/tensorrt_llm_bls"),
        "/app/all_models/inflight_batcher_llm has no tensorrt_llm_bls/config.pbtxt",
    ),
    "damaged template": (
        replaced(LLM, "input [", "input [ ("),
        "tensorrt_llm/config.pbtxt cannot be read (line 8: '(' belongs to no protobuf text)",
    ),
    "nothing installed": (removed(INFO), "no TensorRT-LLM is installed"),
    "unserved version": (
        replaced(f"{INFO}/METADATA", "Version: 1.2.1", "Version: 1.2.0"),
        "TensorRT-LLM 1.2.0 is installed",
    ),
    "release candidate": (
        replaced(f"{INFO}/METADATA", "Version: 1.2.1", "Version: 1.2.1rc2"),
        "TensorRT-LLM 1.2.1rc2 is installed",
    ),
    "missing script": (
        removed(EAGLE),
        "it has no /app/examples/eagle/convert_checkpoint.py or "
        "/app/tensorrt_llm/examples/eagle/convert_checkpoint.py",
    ),
    "removed flag": (
        replaced(EAGLE, flag("max_non_leaves_per_layer"), flag("max_non_leaves")),
        "eagle/convert_checkpoint.py does not define --max_non_leaves_per_layer",
    ),
    "removed flag of a helper": (
        replaced(PLUGINS, "'low_latency_gemm_plugin', ", ""),
        "trtllm-build does not define --low_latency_gemm_plugin",
    ),
    "removed value": (
        replaced(QUANTIZE, "'int4_awq', ", ""),
        "quantization/quantize.py does not take int4_awq for --qformat, but nvfp4, fp8, int8_sq, "
        "w4a8_awq",
    ),
    "switch with a value": (
        replaced(
            BUILD,
            "'--gather_generation_logits', action=\"store_true\"",
            "'--gather_generation_logits'",
        ),
        "trtllm-build needs a value for --gather_generation_logits",
    ),
    "new required flag": (
        replaced(
            EAGLE,
            "    return parser",
            "    parser.add_argument('--licence', required=True)\n    return parser",
        ),
        "eagle/convert_checkpoint.py requires --licence, which a build does not pass",
    ),
    "damaged script": (
        replaced(EAGLE, "import argparse", "import argparse ("),
        "eagle/convert_checkpoint.py is no Python (line 1)",
    ),
    "no engine builder": (
        replaced(f"{INFO}/entry_points.txt", "trtllm-build", "trtllm-bench"),
        "the image has no trtllm-build",
    ),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_is_named_with_the_fix(name: str, tmp_path: Path, capsys: Capture) -> None:
    drift, clause = DRIFTS[name]
    root = write(tmp_path, NEWEST)
    drift(root)
    assert image_main.main(checked(root), json.dumps(expectations("1.2.1"))) == 1
    output = capsys.readouterr()
    paths = output.err.replace(str(root), "")
    assert paths.startswith("specdec: the image differs from TensorRT-LLM 1.2.1: ")
    assert clause in paths
    assert paths.endswith(f"{FIX}\n")
    assert paths.count("\n") == 1
    assert f"- {clause}\n" in output.out.replace(str(root), "")


def test_another_served_version_is_the_first_difference_and_a_fix(
    tmp_path: Path, capsys: Capture
) -> None:
    root = write(tmp_path, RELEASES[0])
    assert image_main.main([str(root)], json.dumps(expectations("1.2.1"))) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "specdec: the image differs from TensorRT-LLM 1.2.1: TensorRT-LLM 0.18.0 is installed; "
    )
    assert " more, which `specdec image check` lists: " in error
    assert error.endswith(
        f": set spec.runtime.version to 0.18.0, or spec.runtime.image to an image of 1.2.1 "
        f"such as {IMAGE}\n"
    )


def test_a_local_build_of_the_release_fits(tmp_path: Path, capsys: Capture) -> None:
    root = write(tmp_path, NEWEST)
    replaced(f"{INFO}/METADATA", "Version: 1.2.1", "Version: 1.2.1+cu13")(root)
    assert report(root, "1.2.1", capsys)["differences"] == []


def test_more_than_a_release_needs_is_no_difference(tmp_path: Path, capsys: Capture) -> None:
    root = write(tmp_path, NEWEST)
    tensor = '{ name: "further" data_type: TYPE_FP8 dims: [ 1 ] optional: true },\n'
    replaced(LLM, "input [\n", f"input [\n{tensor}")(root)
    replaced(LLM, "output [\n", f"output [\n{tensor}")(root)
    replaced(EAGLE, "    return parser", "    parser.add_argument('--more')\n    return parser")(
        root
    )
    assert report(root, "1.2.1", capsys)["differences"] == []


@pytest.mark.parametrize(
    ("arguments", "text", "part"),
    [
        (["missing"], "{}", "is no directory: give the root of an image"),
        (["."], "{", "the image cannot be read"),
        ([".", "--expected", "missing.json"], "", "missing.json"),
    ],
)
def test_bad_input_has_status_2_and_one_sentence(
    arguments: list[str], text: str, part: str, capsys: Capture
) -> None:
    assert image_main.main(arguments, text) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("version", support("TensorRT").versions)
def test_parameters_of_methods_are_known_to_the_release(version: str) -> None:
    engine = expectations(version)["models"]["tensorrt_llm"]
    assert {"gpt_model_type", "gpt_model_path"} <= set(engine["needed"]) <= set(engine["known"])
    served = MODES.keys() - ({"lookahead_decoding"} if version == "0.18.0" else set())
    assert engine["modes"].keys() == served
