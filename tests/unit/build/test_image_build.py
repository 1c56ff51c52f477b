"""A build checks its image before it runs a program, and reports facts of the image."""

import shutil
from pathlib import Path

import pytest

from specdec.api.matrix import support
from unit.build.image import TEMPLATES, Image
from unit.build.test_tensorrt_build import planned


@pytest.mark.parametrize("renamed", [False, True])
def test_the_result_has_the_names_of_request_fields(renamed: bool, tmp_path: Path) -> None:
    image = Image(tmp_path, "0.19.0", checked=True, renamed=renamed)
    contract = image.build(planned(image, "draft_tokens_external"))[0]["engine"]["image"]
    assert contract["requestFields"] == {
        "minTokens": "min_tokens" if renamed else "min_length",
        "seed": "seed" if renamed else "random_seed",
    }
    assert contract.keys() == {"version", "templates", "flags", "requestFields"}


def test_an_image_that_differs_runs_no_program(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    (image.root / "site/tensorrt_llm-1.2.1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: 1.1.0\n", "utf-8"
    )
    path = image.root / TEMPLATES / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text("utf-8").replace('"end_id"', '"eos_id"'), "utf-8")
    build = image.root / "site/tensorrt_llm/commands/build.py"
    build.write_text(build.read_text("utf-8").replace("'--workers'", "'--jobs'"), "utf-8")
    reason, message = image.refused(image.plan())
    assert reason == "ImageMismatch"
    assert message == (
        "the image differs from TensorRT-LLM 1.2.1: TensorRT-LLM 1.1.0 is installed; input end_id "
        "of tensorrt_llm is missing in the image; trtllm-build does not define --workers: set "
        f"spec.runtime.image to an image of 1.2.1 such as {support('TensorRT').images['1.2.1']}"
    )
    assert image.programs() == []


def test_a_missing_script_is_one_of_the_differences(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    (image.root / "examples/eagle/convert_checkpoint.py").unlink()
    shutil.rmtree(image.root / TEMPLATES / "ensemble")
    reason, message = image.refused(planned(image, "eagle"))
    assert reason == "ImageMismatch"
    assert "has no ensemble/config.pbtxt; it has no " in message
    assert "/tensorrt_llm/examples/eagle/convert_checkpoint.py: set spec.runtime.image" in message
    assert image.programs() == []


def test_a_flag_of_another_method_does_not_stop_a_build(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    (image.root / "examples/eagle/convert_checkpoint.py").unlink()
    assert "engine" in image.build(planned(image, "medusa"))[0]


def test_an_extra_argument_that_the_program_lacks_is_reported(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    engine = {"extraArgs": {"profiling": "none"}}
    reason, message = image.refused(image.plan(engine=engine))
    assert reason == "ImageMismatch"
    assert "trtllm-build does not define --profiling" in message


def test_a_difference_may_be_a_warning(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    path = image.root / TEMPLATES / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text("utf-8").replace('"end_id"', '"eos_id"'), "utf-8")
    message, text = image.build(image.plan(imageCheck="Warn"))
    clause = "input end_id of tensorrt_llm is missing in the image"
    assert clause in message["engine"]["image"]["warning"]
    assert f"image check: {clause}\n" in text


def test_names_that_the_templates_lack_are_not_reported(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    shutil.rmtree(image.root / TEMPLATES)
    message, text = image.build(image.plan(imageCheck="Warn"))
    assert "image" not in message["engine"]
    assert "image check: it has no templates in " in text


def test_the_check_can_be_disabled(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    shutil.rmtree(image.root / TEMPLATES)
    message, text = image.build(image.plan(imageCheck="Disabled"))
    assert "image" not in message["engine"]
    assert "image check" not in text


def test_a_complete_engine_is_reported_without_its_checkpoint(tmp_path: Path) -> None:
    image = Image(tmp_path, "1.2.1", checked=True)
    first = image.build(image.plan())[0]["engine"]
    shutil.rmtree(image.root / "base")
    again = image.build(image.plan())[0]["engine"]
    assert again["key"] == first["key"]
    assert again["image"] == {**first["image"], "flags": 0}
