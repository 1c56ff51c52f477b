"""Rotary base and scaling of a converted checkpoint: restored, or refused with both values."""

import json
from pathlib import Path
from typing import Any

import pytest

from unit.build.image import Image
from unit.build.test_tensorrt_build import planned

Json = dict[str, Any]
LLAMA_3_1: Json = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# A checkpoint's rotary fields, and the base and scaling that its engine must have.
SOURCES: dict[str, tuple[Json, float, Json | None]] = {
    "llama-3.1": ({"rope_theta": 500000.0, "rope_scaling": LLAMA_3_1}, 500000.0, LLAMA_3_1),
    "llama-3.2": (
        {"rope_theta": 500000.0, "rope_scaling": {**LLAMA_3_1, "factor": 32.0}},
        500000.0,
        {**LLAMA_3_1, "factor": 32.0},
    ),
    "linear": (
        {"rope_theta": 10000, "rope_scaling": {"type": "linear", "factor": 4}},
        10000.0,
        {"type": "linear", "factor": 4},
    ),
    "dynamic": (
        {"rope_theta": 5e6, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        5e6,
        {"type": "dynamic", "factor": 2.0},
    ),
    "yarn": (
        {
            "rope_theta": 1e6,
            "max_position_embeddings": 32768,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        },
        1e6,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    "none": ({"rope_theta": 500000.0, "rope_scaling": None}, 500000.0, None),
    # Newer releases of transformers write a single object.
    "rope-parameters": (
        {"rope_parameters": {**LLAMA_3_1, "rope_theta": 500000.0}},
        500000.0,
        LLAMA_3_1,
    ),
    "rope-parameters-default": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
        250000.0,
        None,
    ),
    "llama-1": ({}, 10000.0, None),
}
# Method, release, and the program that adds the method's heads.
CONVERTERS = [
    ("eagle", "0.18.0", "convert-eagle"),
    ("medusa", "0.19.0", "convert-medusa"),
    ("explicit_draft_tokens", "0.19.0", "convert-redrafter"),
    ("explicit_draft_tokens", "1.2.1", "convert-redrafter-1"),
]


def loses(base: float, scaling: Json | None) -> Json:
    """Return the config of a converter that ignores the checkpoint's rotary fields."""
    del base, scaling
    return {"rotary_base": 10000.0, "rotary_scaling": None}


def reduces(base: float, scaling: Json | None) -> Json:
    """Return the config of a converter that keeps the base and only the type of the scaling."""
    kept = scaling and {"type": scaling.get("rope_type") or scaling["type"]}
    return {"rotary_base": base, "rotary_scaling": kept}


def keeps(base: float, scaling: Json | None) -> Json:
    """Return the config of a converter that keeps base and scaling."""
    return {"rotary_base": base, "rotary_scaling": scaling}


def converting(image: Image, program: str, source: Json, config: Json) -> None:
    image.checkpoint("LlamaForCausalLM", **source)
    if program == "convert-eagle":
        config = {**config, "eagle_net_config": dict(config)}
    image.scene = {program: {"config": config}}


def built(image: Image) -> Json:
    """Return the config of the converted checkpoint, as `trtllm-build` read it."""
    config: Json = json.loads((image.output / "config.json").read_text(encoding="utf-8"))
    model: Json = config["pretrained_config"]
    return model


def assert_rotary(config: Json, base: float, scaling: Json | None) -> None:
    assert config["rotary_base"] == base
    if scaling is None:
        assert config["rotary_scaling"] is None
        return
    actual = config["rotary_scaling"]
    kind = scaling.get("rope_type") or scaling["type"]
    # Some releases read `type` first, others `rope_type`.
    assert (actual.get("type") or actual["rope_type"]) == kind
    for key in scaling.keys() - {"type", "rope_type"}:
        assert actual[key] == scaling[key]


@pytest.mark.parametrize("converter", [loses, reduces, keeps])
@pytest.mark.parametrize(
    ("method", "version", "program", "source"),
    [
        (*row, source)
        for row in CONVERTERS
        for source in SOURCES
        # From 1.0 on an engine loses the factor of dynamic scaling, which has its own test.
        if (row[1], source) != ("1.2.1", "dynamic")
    ],
)
def test_engine_has_the_rotary_embedding_of_its_checkpoint(
    method: str, version: str, program: str, source: str, converter: Any, tmp_path: Path
) -> None:
    fields, base, scaling = SOURCES[source]
    image = Image(tmp_path, version)
    converting(image, program, fields, converter(base, scaling))

    message, text = image.build(planned(image, method))

    assert "engine" in message
    assert_rotary(built(image), base, scaling)
    if method == "eagle":
        assert_rotary(built(image)["eagle_net_config"], base, scaling)
    changed = converter(base, scaling) not in (keeps(base, scaling), keeps(float(base), scaling))
    assert ("restored" in text) is changed


def test_log_names_what_was_restored(tmp_path: Path) -> None:
    image = Image(tmp_path)
    fields, *_ = SOURCES["llama-3.2"]
    converting(image, "convert-medusa", fields, loses(0, None))

    _, text = image.build(planned(image, "medusa"))

    assert "restored rotary_base 500000.0 of the heads' checkpoint, where it was 10000.0" in text
    assert "restored rotary_scaling llama3 (factor 32.0" in text
    assert "where it was absent" in text


def test_fields_that_a_converter_left_out_are_added(tmp_path: Path) -> None:
    image = Image(tmp_path)
    fields, base, scaling = SOURCES["llama-3.1"]
    image.checkpoint("LlamaForCausalLM", **fields)

    image.build(planned(image, "medusa"))

    assert_rotary(built(image), base, scaling)


def test_quantized_medusa_heads_are_compared_too(tmp_path: Path) -> None:
    image = Image(tmp_path)
    fields, base, scaling = SOURCES["llama-3.2"]
    converting(image, "quantize", fields, loses(0, None))

    image.build(planned(image, "medusa", quantization={"method": "FP8"}))

    assert_rotary(built(image), base, scaling)


def test_a_base_model_alone_is_left_to_its_converter(tmp_path: Path) -> None:
    image = Image(tmp_path)
    converting(image, "convert", SOURCES["llama-3.1"][0], loses(0, None))

    image.build(planned(image, "none"))

    assert built(image)["rotary_base"] == 10000.0


def test_eagle_net_follows_the_config_of_the_heads(tmp_path: Path) -> None:
    image = Image(tmp_path)
    fields, base, scaling = SOURCES["llama-3.1"]
    converting(image, "convert-eagle", fields, keeps(base, scaling))
    heads = image.root / "heads" / "config.json"
    heads.write_text(json.dumps({"rope_theta": 10000.0}), encoding="utf-8")

    image.build(planned(image, "eagle"))

    assert_rotary(built(image), base, scaling)
    assert_rotary(built(image)["eagle_net_config"], 10000.0, None)


@pytest.mark.parametrize(
    ("version", "program", "method", "scaling", "parts"),
    [
        (
            "0.18.0",
            "convert-eagle",
            "eagle",
            {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0], "long_factor": [2.0]},
            ["rotary_scaling is absent", "longrope (factor 4.0", "cannot hold longrope"],
        ),
        (
            "0.19.0",
            "convert-medusa",
            "medusa",
            {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5},
            ["yarn (attention_factor 1.5, factor 4.0)", "cannot hold attention_factor"],
        ),
        (
            "1.2.1",
            "convert-redrafter-1",
            "explicit_draft_tokens",
            {"type": "dynamic", "factor": 2.0},
            ["rotary_scaling is absent", "dynamic (factor 2.0)", "cannot hold factor of dynamic"],
        ),
    ],
)
def test_scaling_that_the_format_cannot_hold_ends_the_build(
    version: str, program: str, method: str, scaling: Json, parts: list[str], tmp_path: Path
) -> None:
    image = Image(tmp_path, version)
    converting(image, program, {"rope_theta": 1e6, "rope_scaling": scaling}, loses(0, None))

    reason, message = image.refused(planned(image, method))

    assert reason == "RotaryMismatch"
    for part in [*parts, version, "engine.prebuilt"]:
        assert part in message
    # The build takes no GPU time for an engine with wrong answers.
    assert "trtllm-build" not in image.programs()


def test_scaling_that_was_kept_passes_whatever_its_type(tmp_path: Path) -> None:
    image = Image(tmp_path)
    scaling = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    source = {"rope_theta": 1e4, "rope_scaling": scaling}
    converting(image, "convert-eagle", source, keeps(1e4, scaling))

    assert "engine" in image.build(planned(image, "eagle"))[0]


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"rope_theta": "large"}, "rope_theta in config.json is 'large', not a positive number"),
        ({"rope_theta": True}, "rope_theta in config.json is True"),
        ({"rope_theta": -1}, "rope_theta in config.json is -1"),
        ({"rope_scaling": "linear"}, "rope_scaling in config.json is 'linear', not an object"),
        ({"rope_parameters": [1]}, "rope_parameters in config.json is [1], not an object"),
        ({"rope_scaling": {"rope_type": 3}}, "type of rope_scaling in config.json is 3"),
    ],
)
def test_damaged_rotary_fields_of_the_checkpoint_are_named(
    fields: Json, part: str, tmp_path: Path
) -> None:
    image = Image(tmp_path)
    image.checkpoint("LlamaForCausalLM", **fields)

    reason, message = image.refused(planned(image, "medusa"))

    assert reason == "CheckpointCorrupt"
    assert part in message
    assert image.programs() == []


def test_damaged_values_of_a_converter_are_replaced(tmp_path: Path) -> None:
    image = Image(tmp_path)
    converting(image, "convert-medusa", {}, {"rotary_base": "x", "rotary_scaling": "llama3"})

    assert "engine" in image.build(planned(image, "medusa"))[0]
    assert_rotary(built(image), 10000.0, None)


def test_a_resumed_build_keeps_what_was_restored(tmp_path: Path) -> None:
    image = Image(tmp_path)
    fields, base, scaling = SOURCES["llama-3.2"]
    converting(image, "convert-medusa", fields, loses(0, None))
    image.scene["trtllm-build"] = {"status": 1}
    assert "error" in image.build(planned(image, "medusa"))[0]
    del image.scene["trtllm-build"]

    image.build(planned(image, "medusa"))

    assert image.programs() == ["convert-medusa", "trtllm-build", "trtllm-build"]
    assert_rotary(built(image), base, scaling)
